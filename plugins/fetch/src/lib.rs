//! A tool source as a component: `fetch` gets a page from a host that its cell grants, and converts HTML to plain text.
//!
//! Where a request may go is not decided here: the broker makes each request, and refuses hosts that are not granted.
//! It checks each redirect again.

use portcullis_plugin::{Failure, Tools, arguments, settings, text_result};
use serde_json::json;
use url::Url;

mod html;
#[cfg(target_os = "wasi")]
mod http;

/// The most redirects that are followed: more than an honest server chains.
const REDIRECTS: usize = 5;

/// The bytes of a page that are read. Larger pages are not meant for reading.
const PAGE_BYTES: usize = 4 << 20;

/// The most bytes of text that one call returns, and the default: what fits into a model's context.
const TEXT_BYTES: usize = 64 << 10;

/// The response to one request.
struct Response {
    status: u16,
    /// The header `location`.
    location: Option<String>,
    /// The header `content-type`.
    kind: Option<String>,
    body: Vec<u8>,
    /// True if the page has more than [`PAGE_BYTES`].
    cut: bool,
}

struct Fetch;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(deserialize_with = "url")]
    url: Url,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    #[serde(default)]
    raw: bool,
}

impl Tools for Fetch {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(settings: &str) -> Result<Self, String> {
        settings::none(settings).map(|()| Self)
    }

    fn definitions(&self) -> Result<String, String> {
        let number = |text| json!({ "type": "integer", "minimum": 0, "description": text });
        let tools = json!([{
            "name": "fetch",
            "description": "Gets a page over HTTP or HTTPS, from a host that this source is granted. HTML becomes plain text.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "url": { "type": "string", "format": "uri", "description": "Such as https://example.com/page" },
                    "offset": number("Bytes of the text to skip."),
                    "limit": number("The most bytes of text to return, up to 65536, which is also the default."),
                    "raw": { "type": "boolean", "description": "Return HTML as it is." },
                },
                "required": ["url"],
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true,
            },
        }]);
        Ok(tools.to_string())
    }

    fn open(&self) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        if tool != "fetch" {
            return Err(Failure::UnknownTool);
        }
        let page: Page = self::arguments(arguments)?;
        page.get(get).map(|said| text_result(&said)).map_err(Failure::Failed)
    }
}

impl Page {
    /// Follows redirects to the page, and returns its text.
    fn get(&self, get: impl Fn(&Url) -> Result<Response, String>) -> Result<String, String> {
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS {
            if !matches!(url.scheme(), "http" | "https") {
                return Err(format!("{url} is not an HTTP address"));
            }
            let response = get(&url)?;
            let to = response.location.as_deref().filter(|_| matches!(response.status, 301..=303 | 307 | 308));
            let Some(to) = to else { return self.text(&url, &response) };
            let next = url.join(to).map_err(|_| format!("{url} redirects to {to:?}, which is not an address"))?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(format!("{url} redirects to {next}, which is not encrypted"));
            }
            url = next;
        }
        Err(format!("{} leads to more than {REDIRECTS} redirects", self.url))
    }

    fn text(&self, url: &Url, response: &Response) -> Result<String, String> {
        let kind = response.kind.as_deref().unwrap_or("text/plain").to_ascii_lowercase();
        let size = response.body.len();
        let Ok(body) = std::str::from_utf8(whole_characters(&response.body, response.cut)) else {
            return Err(format!("{url} is not UTF-8 text: {size} bytes of {kind}, status {}", response.status));
        };
        let is_html = kind.contains("html") || (response.kind.is_none() && body.trim_start().starts_with('<'));
        let text = if is_html && !self.raw { html::text(body) } else { body.to_owned() };
        if response.status >= 400 {
            let shown = text.get(..text.floor_char_boundary(1000)).unwrap_or_default();
            return Err(format!("{url} answered with status {}: {shown}", response.status));
        }
        let start = text.floor_char_boundary(self.offset);
        let end = text.floor_char_boundary(start.saturating_add(self.limit.unwrap_or(TEXT_BYTES).min(TEXT_BYTES)));
        // One character at least, so that the offset to continue from is another one.
        let first = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        let end = end.max(start + first);
        let mut said = text.get(start..end).unwrap_or_default().to_owned();
        if end < text.len() {
            said.push_str(&format!("\n[{} bytes of text follow; go on with offset {end}]", text.len() - end));
        } else if response.cut {
            said.push_str(&format!("\n[the page is longer; only its first {PAGE_BYTES} bytes are read]"));
        }
        Ok(said)
    }
}

fn url<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
    Url::parse(&text).map_err(serde::de::Error::custom)
}

/// Returns a body without the incomplete character at its end, if it was cut.
fn whole_characters(body: &[u8], cut: bool) -> &[u8] {
    match std::str::from_utf8(body) {
        Err(error) if cut && error.error_len().is_none() => body.get(..error.valid_up_to()).unwrap_or_default(),
        _ => body,
    }
}

#[cfg(target_os = "wasi")]
use http::get;

#[cfg(not(target_os = "wasi"))]
fn get(url: &Url) -> Result<Response, String> {
    Err(format!("{url} is out of reach: there is no network outside a component"))
}

portcullis_plugin::export_tools!(Fetch);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
