//! What a program does that embeds the broker, with the published packages.

#[cfg(test)]
mod tests {
    use portcullis::Launcher;
    use portcullis::broker::Broker;
    use portcullis::call::CallView;
    use portcullis::config::Config;
    use portcullis::plugin::{Denial, NativeError, NativePolicy, Verdict};
    use portcullis::source::NativeSource;
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
            if view.call.arguments.as_str().contains("secret") {
                return Ok(Verdict::Deny(Denial { code: "secret".into(), message: "this is secret".into() }));
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
            .source("calc", json!({ "component": "builtin:calculator" }))
            .policy(json!({ "plugin": "builtin:rules", "settings": { "deny": ["calc__divide"] } }))
            .build()
            .unwrap();
        let broker = Broker::build(config, Launcher::SelfExec).await.unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), "me", "outside").await.unwrap();
        let sum = session.call_tool("calc__add", &json!({ "a": 20, "b": 22 })).await.unwrap();
        assert!(sum.as_str().contains("42"), "{sum:?}");
        let denied = session.call_tool("calc__divide", &json!({ "a": 84, "b": 2 })).await.unwrap_err();
        assert!(denied.message.contains("denied"), "{denied:?}");
        broker.shutdown().await;
    }

    #[tokio::test]
    async fn a_policy_and_a_server_of_the_program_stand_behind_the_gate() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::builder(folder.path())
            .profile("default", json!({ "approve": "never" }))
            .source("notes", json!({ "native": "notes" }))
            .policy(json!({ "plugin": "native:discreet" }))
            .build()
            .unwrap();
        let broker = Broker::builder(config, Launcher::SelfExec)
            .source("notes", Notes)
            .policy("discreet", Discreet)
            .build()
            .await
            .unwrap();
        let session = broker.open_session(&"default".parse().unwrap(), "me", "outside").await.unwrap();
        let noted = session.call_tool("notes__note", &json!({ "text": "milk" })).await.unwrap();
        assert!(noted.as_str().contains("noted: milk"), "{noted:?}");
        let denied = session.call_tool("notes__note", &json!({ "text": "a secret" })).await.unwrap_err();
        assert!(denied.message.contains("secret"), "{denied:?}");
        broker.shutdown().await;
    }
}
