//! A program that embeds the broker, with the published packages.

#[cfg(test)]
mod tests {
    use portcullis::{
        Approve, Broker, CallView, Config, HttpFront, Launcher, NativeError, NativePolicy, NativeSource, PluginTable,
        ProfileTable, SourceTable, Verdict,
    };
    use portcullis_plugin::fake::FakeCall;
    use rmcp::transport::StreamableHttpClientTransport;
    use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
    use rmcp::handler::server::wrapper::Parameters;
    use rmcp::{ServiceExt as _, schemars, tool, tool_router};
    use serde_json::json;
    use tokio::io::DuplexStream;

    /// Denies calls that mention what is secret.
    struct Discreet;

    #[async_trait::async_trait]
    impl NativePolicy for Discreet {
        fn version(&self) -> &str {
            "1"
        }

        async fn check(&self, view: &CallView) -> Result<Verdict, NativeError> {
            if view.arguments().as_str().contains("secret") {
                return Ok(Verdict::deny("secret", "this is secret"));
            }
            Ok(Verdict::Pass)
        }
    }

    /// An MCP server, as the documentation of rmcp shows one.
    #[derive(Clone)]
    struct Notes;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Note {
        text: String,
    }

    #[tool_router(server_handler)]
    impl Notes {
        #[tool(description = "Take a note")]
        fn note(&self, Parameters(Note { text }): Parameters<Note>) -> String {
            format!("noted: {text}")
        }
    }

    #[async_trait::async_trait]
    impl NativeSource for Notes {
        fn version(&self) -> &str {
            "1"
        }

        async fn serve(&self, stream: DuplexStream) -> Result<(), NativeError> {
            self.clone().serve(stream).await?.waiting().await?;
            Ok(())
        }
    }

    /// The reference plugins are in the package: nobody outside can build them.
    #[tokio::test]
    async fn a_component_is_called_and_a_reference_policy_decides() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path())
            .source("calc", SourceTable::component("builtin:calculator"))
            .policy(PluginTable::new("builtin:rules").settings(json!({ "deny": ["calc__divide"] })))
            .build()
            .unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "outside").await.unwrap();
        let sum = session.call_tool("calc__add", &json!({ "a": 20, "b": 22 })).await.unwrap();
        assert_eq!(sum.text(), "42");
        let denied = session.call_tool("calc__divide", &json!({ "a": 84, "b": 2 })).await.unwrap_err();
        assert!(denied.message.contains("denied"), "{denied:?}");
        broker.shutdown().await;
    }

    #[tokio::test]
    async fn a_policy_and_a_server_of_the_program_stand_behind_the_gate() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path())
            .profile("default", ProfileTable::new().approve(Approve::Never))
            .source("notes", SourceTable::native("notes"))
            .policy(PluginTable::new("native:discreet"))
            .build()
            .unwrap();
        let broker = Broker::builder(config, Launcher::SelfExec)
            .source("notes", Notes)
            .policy("discreet", Discreet)
            .build()
            .await
            .unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), &"me".parse().unwrap(), "outside").await.unwrap();
        let noted = session.call_tool("notes__note", &json!({ "text": "milk" })).await.unwrap();
        assert_eq!(noted.text(), "noted: milk");
        let denied = session.call_tool("notes__note", &json!({ "text": "a secret" })).await.unwrap_err();
        assert!(denied.message.contains("secret"), "{denied:?}");
        broker.shutdown().await;
    }

    /// A policy that its author tests before building it as a component.
    struct NoDeletes;

    impl portcullis_plugin::Policy for NoDeletes {
        fn configure(_settings: &str) -> Result<Self, String> {
            Ok(Self)
        }

        fn check(&self, call: &impl portcullis_plugin::Call) -> Result<portcullis_plugin::Verdict, String> {
            if call.tool().starts_with("delete_") {
                return Ok(portcullis_plugin::Verdict::deny("no-deletes", "nothing may be deleted"));
            }
            Ok(portcullis_plugin::Verdict::Pass)
        }
    }

    portcullis_plugin::export_policy!(NoDeletes);

    #[test]
    fn a_plugin_is_written_and_tested_with_the_package_for_authors() {
        let verdict = |tool| portcullis_plugin::Policy::check(&NoDeletes, &FakeCall::new("files", tool)).unwrap();
        assert!(matches!(verdict("delete_file"), portcullis_plugin::Verdict::Deny(_)));
        assert!(matches!(verdict("read_file"), portcullis_plugin::Verdict::Pass));
    }

    #[tokio::test]
    async fn agents_reach_the_broker_under_the_programs_own_router() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path())
            .source("calc", SourceTable::component("builtin:calculator"))
            .serve(json!({ "listen": address.to_string(), "dangerous-no-token": true }))
            .build()
            .unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let agents = HttpFront::service(&broker, "default".parse().unwrap()).unwrap();
        let app = axum::Router::new().route("/", axum::routing::get(|| async { "mine" })).nest_service("/agents", agents);
        let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
        let served = tokio::spawn(axum::serve(listener, app).into_future());

        let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/agents/mcp"));
        let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        assert!(tools.iter().any(|tool| tool.name == "calc__add"), "{tools:?}");
        client.cancel().await.unwrap();
        broker.shutdown().await;
        served.abort();
    }
}
