//! An MCP server with the tools `add` and `multiply`, written with the official Rust SDK. Benchmarks compare the
//! builtin component with it; built for `wasm32-wasip2` it is a component itself.

#[cfg(target_os = "wasi")]
mod streams;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

struct Calculator;

#[derive(serde::Deserialize)]
struct Operands {
    a: f64,
    b: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(not(target_os = "wasi"))]
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    #[cfg(target_os = "wasi")]
    let streams = (streams::Input::default(), streams::Output);
    Calculator.serve(streams).await?.waiting().await?;
    Ok(())
}

impl ServerHandler for Calculator {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("calculator", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let number = json!({ "type": "number" });
        let input = json!({ "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"] });
        let tools = ["add", "multiply"].map(|name| json!({ "name": name, "inputSchema": input }));
        serde_json::from_value(json!({ "tools": tools })).map_err(internal)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let Operands { a, b } =
            serde_json::from_value(arguments).map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let result = match &*request.name {
            "add" => a + b,
            "multiply" => a * b,
            other => return Err(ErrorData::invalid_params(format!("unknown tool: {other}"), None)),
        };
        Ok(CallToolResult::structured(json!({ "result": result })).into())
    }
}

fn internal(error: serde_json::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
