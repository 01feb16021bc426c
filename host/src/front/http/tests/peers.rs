//! Tests with rmcp's client, in both eras.

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::*;

#[tokio::test]
async fn rmcp_speaks_both_eras_with_it() {
    let modern = vec![ProtocolVersion::V_2026_07_28];
    for lifecycle in [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: modern.clone() },
        ClientLifecycleMode::Auto { preferred_versions: modern, legacy_version: None },
    ] {
        let server = Server::new().await;
        let config = StreamableHttpClientTransportConfig::with_uri(server.url()).auth_header(TOKEN);
        let transport = StreamableHttpClientTransport::with_client(server.client.clone(), config);
        let client = serve_client_with_lifecycle((), transport, lifecycle.clone()).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["echo", "slow"], "{lifecycle:?}");
        for name in ["echo", "progress"] {
            client.call_tool(CallToolRequestParams::new(name)).await.unwrap();
        }
        client.cancel().await.unwrap();
        server.stop().await;
    }
}
