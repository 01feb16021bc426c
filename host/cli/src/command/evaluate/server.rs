//! Speaks MCP with an evaluated server, as plainly as a client can.

mod connection;
mod messages;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Error, anyhow, bail};
use portcullis::protocol::{Era, Method, RpcError, meta, revision};
use portcullis_evaluate::ObservedMessage;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::run::EvaluatedSource;
use connection::ServerMessage;
use messages::MessageLog;

pub(super) use connection::{MAX_MESSAGE_BYTES, ServerConnection, ServerPipe};

/// The longest time for the server to start, and to answer a call.
const START_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// The largest number of pages of a list that are fetched.
const MAX_PAGES: usize = 20;

/// The largest size of everything that is listed at one time, in bytes, and the largest number of values in it: each
/// takes much more memory than its text.
const MAX_LISTED_BYTES: usize = 8 << 20;
const MAX_LISTED_VALUES: usize = 250_000;

/// The longest answer to the first message, in bytes.
const MAX_MET_BYTES: usize = 256 * 1024;

/// The longest cursor that is sent back, in bytes.
const MAX_CURSOR_BYTES: usize = 64 * 1024;

/// A server that is spoken to.
pub(super) struct ServerConversation {
    connection: ServerConnection,
    next_id: u64,
    /// The name of the client that it is spoken to as.
    client: &'static str,
    /// The era in which requests are made.
    era: Era,
    /// The server's description of itself.
    met: Value,
    /// The messages that it sent besides its answers.
    said: MessageLog,
}

impl ServerConversation {
    /// Begins the conversation as this client: in the modern era, or in the legacy one and, if the server refuses that,
    /// in the modern one.
    pub(super) async fn begin(connection: ServerConnection, client: &'static str, era: Era) -> anyhow::Result<Self> {
        let mut server = Self { connection, next_id: 1, client, era, met: Value::Null, said: MessageLog::default() };
        if era == Era::Modern {
            server.discover(START_TIMEOUT).await?;
        } else if let Err(refused) = server.initialize().await {
            server.era = Era::Modern;
            server.discover(CALL_TIMEOUT).await.map_err(|_| refused)?;
        }
        Ok(server)
    }

    async fn initialize(&mut self) -> anyhow::Result<()> {
        let newest = revision::LEGACY.last().copied().unwrap_or_default();
        let params = json!({ "protocolVersion": newest, "capabilities": {}, "clientInfo": self.client_info() });
        let met = self.request(&Method::Initialize, params, START_TIMEOUT).await?;
        self.met = of_itself(&Method::Initialize, &met)?;
        let protocol = self.met.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        self.connection.agreed(protocol, &[]);
        let ready = json!({ "jsonrpc": "2.0", "method": Method::NotificationsInitialized.as_str() });
        self.connection.send(&ready).await
    }

    async fn discover(&mut self, limit: Duration) -> anyhow::Result<()> {
        let met = self.request(&Method::ServerDiscover, json!({}), limit).await?;
        let met = of_itself(&Method::ServerDiscover, &met)?;
        let versions = met.get("supportedVersions").and_then(Value::as_array);
        if !versions.is_some_and(|versions| versions.iter().any(|version| version == revision::MODERN)) {
            bail!("its answer to `server/discover` does not name {}", revision::MODERN);
        }
        self.met = met;
        self.connection.agreed(revision::MODERN, &[]);
        Ok(())
    }

    fn client_info(&self) -> Value {
        json!({ "name": self.client, "version": "1.0.0" })
    }

    /// Ends the conversation.
    pub(super) async fn leave(self) {
        self.connection.close().await;
    }

    fn protocol(&self) -> &str {
        match self.era {
            Era::Modern => revision::MODERN,
            Era::Legacy => self.met.get("protocolVersion").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    async fn list(
        &mut self,
        method: &Method,
        key: &str,
        room: &mut Room,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut params) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let page = self.request(method, params, CALL_TIMEOUT).await?;
            room.take_up(&page)?;
            let mut page: Value = serde_json::from_str(&page)?;
            if let Some(Value::Array(items)) = page.get_mut(key).map(Value::take) {
                all.extend(items);
            }
            match page.get("nextCursor") {
                Some(Value::String(cursor)) if cursor.len() > MAX_CURSOR_BYTES => {
                    bail!("the cursor of its next page is longer than {MAX_CURSOR_BYTES} bytes")
                }
                Some(Value::String(cursor)) => params = json!({ "cursor": cursor }),
                _ => return Ok(all),
            }
        }
        *unseen.entry("lists with more pages than were fetched").or_default() += 1;
        Ok(all)
    }

    /// Sends a request and waits for the result, which is JSON text. Requests of the server are refused meanwhile.
    async fn request(&mut self, method: &Method, mut params: Value, limit: Duration) -> anyhow::Result<String> {
        if self.era == Era::Modern
            && let Some(params) = params.as_object_mut()
        {
            let facts = json!({
                meta::PROTOCOL_VERSION: revision::MODERN,
                meta::CLIENT_INFO: self.client_info(),
                meta::CLIENT_CAPABILITIES: {},
            });
            params.insert("_meta".to_owned(), facts);
        }
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method.as_str(), "params": params });
        let answer = async {
            // One that does not read keeps nobody waiting longer than one that does not answer.
            self.connection.send(&request).await?;
            loop {
                match self.connection.receive().await? {
                    ServerMessage::Request { method, id, params } => {
                        self.said.add(&method, params);
                        self.refuse(&method, &id).await?;
                    }
                    ServerMessage::Answer { id: of, result } if of == id.to_string() => {
                        return result.map_err(Error::msg);
                    }
                    ServerMessage::Answer { .. } => {}
                }
            }
        };
        timeout(limit, answer).await.unwrap_or_else(|_| Err(anyhow!("no answer within {} s", limit.as_secs())))
    }

    async fn refuse(&mut self, method: &str, id: &Value) -> anyhow::Result<()> {
        if id.is_null() {
            return Ok(());
        }
        let answer = match Method::from(method) {
            Method::Ping => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            _ => {
                let error = json!({ "code": RpcError::METHOD_NOT_FOUND, "message": "not supported" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.connection.send(&answer).await
    }
}

impl EvaluatedSource for ServerConversation {
    fn name(&self) -> String {
        let modern = self.met.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO));
        let about = modern.or_else(|| self.met.get("serverInfo"));
        let text = |key: &str| about.and_then(|about| about.get(key)?.as_str()).unwrap_or_default();
        format!("{} {}", text("name"), text("version")).trim().to_owned()
    }

    async fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        #[derive(Deserialize)]
        struct Flagged {
            #[serde(rename = "isError", default)]
            is_error: bool,
        }
        let params = json!({ "name": tool, "arguments": arguments });
        match self.request(&Method::ToolsCall, params, CALL_TIMEOUT).await {
            Ok(result) => {
                let failed = serde_json::from_str(&result).is_ok_and(|Flagged { is_error }| is_error);
                (result, failed)
            }
            Err(error) => (json!({ "error": format!("{error:#}") }).to_string(), true),
        }
    }

    async fn definitions(
        &mut self,
        unseen: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let (mut all, mut room) = (Vec::new(), Room { bytes: MAX_LISTED_BYTES, values: MAX_LISTED_VALUES });
        if let Some(instructions) = self.met.get("instructions") {
            all.push(("instructions", json!({ "instructions": instructions })));
        }
        let lists = [
            (Method::ToolsList, "tools", "tools", "tool"),
            (Method::PromptsList, "prompts", "prompts", "prompt"),
            (Method::ResourcesList, "resources", "resources", "resource"),
            (Method::ResourcesTemplatesList, "resources", "resourceTemplates", "template"),
        ];
        for (method, capability, key, kind) in lists {
            if self.met.pointer(&format!("/capabilities/{capability}")).is_none() {
                continue;
            }
            match self.list(&method, key, &mut room, unseen).await {
                Ok(listed) => {
                    if kind == "tool" {
                        self.connection.agreed(self.protocol(), &listed);
                    }
                    all.extend(listed.into_iter().map(|definition| (kind, definition)));
                }
                // A list of anything but tools may be missing although it is announced.
                Err(error) if kind == "tool" => return Err(error),
                Err(_) => *unseen.entry("lists of prompts or resources that could not be fetched").or_default() += 1,
            }
        }
        Ok(all)
    }

    fn messages(&mut self) -> (Vec<ObservedMessage>, u64) {
        self.said.take()
    }
}

/// Returns a server's description of itself, unless that is too long.
fn of_itself(method: &Method, met: &str) -> anyhow::Result<Value> {
    if met.len() > MAX_MET_BYTES {
        bail!("its answer to `{method}` is longer than {MAX_MET_BYTES} bytes");
    }
    Ok(serde_json::from_str(met)?)
}

/// The room that is left for lists.
struct Room {
    bytes: usize,
    values: usize,
}

impl Room {
    fn take_up(&mut self, page: &str) -> anyhow::Result<()> {
        let values = page.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        let left = self.bytes.checked_sub(page.len()).zip(self.values.checked_sub(values));
        let (bytes, values) = left.with_context(|| {
            format!("it lists more than {} MiB or {MAX_LISTED_VALUES} values", MAX_LISTED_BYTES >> 20)
        })?;
        *self = Self { bytes, values };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_a_server_lists_has_a_bound_in_bytes_and_in_values() {
        let mut room = Room { bytes: MAX_LISTED_BYTES, values: MAX_LISTED_VALUES };
        room.take_up(&"a".repeat(MAX_LISTED_BYTES / 2)).unwrap();
        assert!(room.take_up(&"a".repeat(MAX_LISTED_BYTES / 2 + 1)).unwrap_err().to_string().contains("8 MiB"));
        room.take_up(&"0,".repeat(MAX_LISTED_VALUES)).unwrap();
        assert!(room.take_up("{}").is_err(), "values that are short in text are long in memory");
    }
}
