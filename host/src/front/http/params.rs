//! `Mcp-Param-*`: arguments that a tool's schema asks to be repeated in headers (`x-mcp-header`), so that what lies
//! between may route on them. They must say what the body says (2026-07-28).

use axum::http::HeaderMap;
use serde_json::Value;

use super::headers;
use crate::message::Json;

/// The annotation in a schema.
const ANNOTATION: &str = "x-mcp-header";

/// Compares the headers of a `tools/call` with its arguments, as far as the tool asks for it.
///
/// # Errors
/// What disagrees, without the values: they are payload.
pub(crate) fn check(headers: &HeaderMap, tools: &[Json], params: &Json) -> Result<(), String> {
    let Some(name) = params.get_str("name") else { return Ok(()) };
    let annotated = |tool: &&Json| tool.as_str().contains(ANNOTATION) && tool.get_str("name").as_ref() == Some(&name);
    let schema = tools.iter().find(annotated).and_then(|tool| tool.get("inputSchema"));
    let Some(schema) = schema.and_then(|schema| schema.read::<Value>().ok()) else { return Ok(()) };
    let arguments = params.get("arguments").and_then(|arguments| arguments.read().ok()).unwrap_or(Value::Null);
    properties(&schema, Some(&arguments), headers)
}

/// Annotations count on `properties` chains from the root only. Messages are at most 128 levels deep, and so is this.
fn properties(schema: &Value, arguments: Option<&Value>, headers: &HeaderMap) -> Result<(), String> {
    let Some(properties_of) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, schema) in properties_of {
        let argument = arguments.and_then(|arguments| arguments.get(name));
        if let Some(header) = schema.get(ANNOTATION).and_then(Value::as_str).filter(|header| !header.is_empty()) {
            property(&format!("mcp-param-{}", header.to_ascii_lowercase()), argument, headers)?;
        }
        properties(schema, argument, headers)?;
    }
    Ok(())
}

fn property(header: &str, argument: Option<&Value>, headers: &HeaderMap) -> Result<(), String> {
    let expected = match argument {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Bool(truth)) => Some(truth.to_string()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let given = headers::value(headers, header)?
        .map(|raw| headers::decode(raw).ok_or_else(|| format!("header `{header}` is not valid Base64")))
        .transpose()?;
    match (given, expected) {
        (None, Some(_)) => Err(format!("header `{header}` is missing, which the tool's schema asks for")),
        (Some(_), None) => Err(format!("header `{header}` is there, and its argument is not")),
        (given, expected) if given != expected => Err(format!("header `{header}` does not say what the body says")),
        _ => Ok(()),
    }
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
