//! The `Mcp-Param-*` headers of a request, which must agree with its body (2026-07-28).

use axum::http::HeaderMap;
use serde_json::Value;

use super::headers;
use crate::protocol::Json;
use crate::protocol::param_header::{self, MirroredArgument};

/// Compares the headers of a `tools/call` with those arguments that the tool's schema requires to be repeated in
/// headers, if it requires any.
///
/// # Errors
/// The disagreement, without the values, which are payload.
pub(crate) fn check(headers: &HeaderMap, mirroring: &[Json], params: &Json) -> Result<(), String> {
    let Some(name) = params.get_str("name") else { return Ok(()) };
    let schema = mirroring
        .iter()
        .find(|tool| tool.get_str("name").as_ref() == Some(&name))
        .and_then(|tool| tool.get("inputSchema"));
    let Some(schema) = schema.and_then(|schema| schema.read::<Value>().ok()) else { return Ok(()) };
    let arguments = params.get("arguments").and_then(|arguments| arguments.read().ok()).unwrap_or(Value::Null);
    // A schema whose annotations violate the protocol asks for no headers.
    let mirrored = param_header::mirrored_arguments(&schema).unwrap_or_default();
    mirrored.iter().try_for_each(|mirrored| agree(mirrored, &arguments, headers))
}

fn agree(mirrored: &MirroredArgument, arguments: &Value, headers: &HeaderMap) -> Result<(), String> {
    let header = &mirrored.header;
    let given = headers::value(headers, header)?
        .map(|raw| param_header::decode(raw).ok_or_else(|| format!("header `{header}` is not valid Base64")))
        .transpose()?;
    match (given, mirrored.value(arguments)) {
        (None, Some(_)) => Err(format!("header `{header}` is missing, which the tool's schema asks for")),
        (Some(_), None) => Err(format!("header `{header}` is present, but its argument is missing")),
        (Some(given), Some(value)) if !same(&given, &value) => {
            Err(format!("header `{header}` does not agree with the body"))
        }
        _ => Ok(()),
    }
}

/// Reports whether two texts are the same, or the same number.
fn same(given: &str, value: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    given == value || value.parse::<i64>().is_ok() && number(given) == number(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn annotated_arguments_must_be_repeated() {
        let tool = Json::of(&serde_json::json!({ "name": "t", "inputSchema": { "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
        } } }));
        let check = |arguments: Value, pairs: &[(&'static str, &str)]| {
            let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let params = Json::of(&serde_json::json!({ "name": "t", "arguments": arguments }));
            check(&headers, std::slice::from_ref(&tool), &params)
        };
        let full = serde_json::json!({ "region": "eu", "deep": { "n": 7 } });
        assert_eq!(check(full.clone(), &[("mcp-param-region", "=?base64?ZXU=?="), ("mcp-param-n", "7")]), Ok(()));
        assert_eq!(check(serde_json::json!({}), &[]), Ok(()));
        assert!(check(full.clone(), &[("mcp-param-region", "eu")]).is_err());
        assert!(check(full, &[("mcp-param-region", "us"), ("mcp-param-n", "7")]).is_err());
        assert!(check(serde_json::json!({}), &[("mcp-param-region", "eu")]).is_err());
    }
}
