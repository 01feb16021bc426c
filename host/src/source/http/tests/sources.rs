//! Sources over HTTP: discovery in both eras, servers of 2024, and addresses and headers that are refused.

use super::*;

fn source(address: SocketAddr, headers: &[(&str, &str)], private: bool) -> Result<HttpSource, SourceError> {
    let plain = |(name, value): &(&str, &str)| ((*name).to_owned(), ConfigValue::Plain((*value).to_owned()));
    let headers = headers.iter().map(plain).collect();
    given(address, GivenValues::new(&headers, &SecretStore::open(Path::new("/no/folder")).unwrap()), private)
}

fn given(address: SocketAddr, given: GivenValues, private: bool) -> Result<HttpSource, SourceError> {
    let url = Url::parse(&format!("http://{address}/mcp")).unwrap();
    let config = SourceConfig {
        endpoint: Endpoint::Url {
            url,
            headers: BTreeMap::new(),
            oauth: crate::config::OAuthConfig::default(),
            dangerous_allow_private: private,
            transport_kind: HttpTransportKind::Detect,
        },
        timeout: Duration::from_secs(60),
        ..crate::catalog::testing::source("web", Naming::Source)
    };
    HttpSource::new(&config, given, Path::new("/dev/null/none"), Arc::new(|_| {}))
}

#[tokio::test]
async fn sources_of_both_eras_are_discovered() {
    for modern in [true, false] {
        let (address, log) = serve(move |seen| match seen.called() {
            "server/discover" if modern => result(
                seen,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}),
            ),
            "server/discover" => StatusCode::BAD_REQUEST.into_response(),
            "initialize" => result(
                seen,
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"}}),
            ),
            "notifications/initialized" => StatusCode::ACCEPTED.into_response(),
            "tools/list" => result(
                seen,
                json!({"resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            ),
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        })
        .await;
        let source = source(address, &[("Authorization", "Bearer k")], true).unwrap();
        let discovery = source.discover(&no_client()).await.unwrap();
        assert_eq!(discovery.protocol, if modern { "2026-07-28" } else { "2025-06-18" });
        assert_eq!(discovery.tools.items.len(), 1);
        source.close().await;
        assert!(log.lock().unwrap().iter().all(|seen| seen.header("authorization") == Some("Bearer k")));
        assert!(!format!("{source:?}").contains("Bearer"));
    }
}

#[tokio::test]
async fn a_server_gets_the_secrets_that_are_set_when_it_is_connected() {
    let (address, log) = serve(|seen| match seen.called() {
        "server/discover" => result(
            seen,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}),
        ),
        _ => result(seen, json!({"resultType": "complete", "tools": []})),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let secrets = SecretStore::open(&folder.path().join("data")).unwrap();
    secrets.set("key", &"first".into()).unwrap();
    let listed = BTreeMap::from([("X-Key".to_owned(), ConfigValue::Secret("key".to_owned()))]);
    let source = given(address, GivenValues::new(&listed, &secrets), true).unwrap();
    source.discover(&no_client()).await.unwrap();
    secrets.set("key", &"second".into()).unwrap();
    let restarted = source.restart("test", Duration::from_secs(60)).await;
    assert_eq!(restarted.unwrap(), crate::source::SourceStatus::Ready);
    let keys: Vec<_> = log.lock().unwrap().iter().map(|seen| seen.header("x-key").unwrap().to_owned()).collect();
    let half = keys.len() / 2;
    assert!(half > 0 && keys[..half].iter().all(|key| key == "first"), "{keys:?}");
    assert!(keys[half..].iter().all(|key| key == "second"), "{keys:?}");

    secrets.remove("key").unwrap();
    let why = source.restart("test", Duration::from_secs(60)).await.unwrap_err().to_string();
    assert!(why.contains("portcullis secret set key"), "{why}");
    source.close().await;
}

#[tokio::test]
async fn a_server_of_2024_is_found_and_spoken_to() {
    let (events, queue) = tokio::sync::mpsc::unbounded_channel::<String>();
    let queue = Mutex::new(Some(queue));
    let (address, log) = serve(move |seen| {
        let answer = |result: Data| {
            let message = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": result });
            events.send(format!("event: message\ndata: {message}\n\n")).unwrap();
            StatusCode::ACCEPTED.into_response()
        };
        match (&seen.method, seen.path.as_str(), seen.called()) {
            (&Method::GET, "/mcp", _) => {
                let queue = queue.lock().unwrap().take().unwrap();
                let first = stream::iter(["event: endpoint\ndata: /messages?session=1\n\n".to_owned()]);
                let rest = stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)));
                streamed(first.chain(rest).map(Ok))
            }
            (_, "/messages", "initialize") => {
                let server = json!({ "name": "old", "version": "1" });
                answer(
                    json!({ "protocolVersion": "2024-11-05", "capabilities": { "tools": {} }, "serverInfo": server }),
                )
            }
            (_, "/messages", "tools/list") => answer(json!({ "tools": [{ "name": "t", "inputSchema": {} }] })),
            (_, "/messages", "notifications/initialized") => StatusCode::ACCEPTED.into_response(),
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    })
    .await;
    let source = source(address, &[("Authorization", "Bearer k")], true).unwrap();
    let discovery = source.discover(&no_client()).await.unwrap();
    assert_eq!((discovery.protocol.as_str(), discovery.tools.items.len()), ("2024-11-05", 1));
    source.close().await;
    assert!(log.lock().unwrap().iter().all(|seen| seen.header("authorization") == Some("Bearer k")));
}

#[tokio::test]
async fn messages_to_a_server_of_2024_go_to_its_own_origin_only() {
    let (address, _) = serve(|seen| match seen.method {
        Method::GET => events("event: endpoint\ndata: http://192.0.2.1/messages\n\n".to_owned()),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    })
    .await;
    let (name, url) = ("web".parse().unwrap(), Url::parse(&format!("http://{address}/mcp")).unwrap());
    let client = Egress::new().client_for(&url, Reach::Private).unwrap();
    let (shared, inbox) = TransportShared::new(
        ServerAccess { source: name, url, client, headers: HeaderMap::new(), bearer: None },
        10_000,
    );
    let refused = LegacySse::open(shared, inbox).await.err().unwrap().to_string();
    assert!(refused.contains("another origin"), "{refused}");
}

#[tokio::test]
async fn a_source_that_may_not_be_reached_or_sets_our_headers_is_refused_at_once() {
    let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let why = |headers: &[(&str, &str)], private| source(address, headers, private).unwrap_err().to_string();
    assert!(why(&[], false).contains("dangerous-allow-private = true"));
    assert!(why(&[("Mcp-Session-Id", "x")], true).contains("is set by the broker"));
    let broken = why(&[("Authorization", "tok3n\n")], true);
    assert!(broken.contains("not allowed in a header") && !broken.contains("tok3n"), "{broken}");
}
