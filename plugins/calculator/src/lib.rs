//! A tool source as a component: `add`, `subtract`, `multiply` and `divide` for two numbers.
//!
//! Integers are exact up to 128 bits, and a quotient without a remainder is an integer. Everything
//! else is a 64-bit float.

use std::fmt;

use portcullis_plugin::json::{Json, Value, quote};
use portcullis_plugin::{Failure, Tools, settings};

struct Calculator;

const TOOLS: [(&str, &str); 4] = [
    ("add", "Adds b to a."),
    ("subtract", "Subtracts b from a."),
    ("multiply", "Multiplies a by b."),
    ("divide", "Divides a by b."),
];

impl Tools for Calculator {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(settings: &str) -> Result<Self, String> {
        settings::none(settings).map(|()| Self)
    }

    fn definitions(&self) -> Result<String, String> {
        Ok(format!("[{}]", TOOLS.map(|(name, description)| definition(name, description)).join(",")))
    }

    fn open(&self) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        if !TOOLS.iter().any(|(name, _)| *name == tool) {
            return Err(Failure::UnknownTool);
        }
        let (a, b) = operands(arguments).map_err(Failure::InvalidArguments)?;
        let result = compute(tool, a, b).map_err(|why| Failure::Failed(why.into()))?;
        Ok(format!(
            r#"{{"content":[{{"type":"text","text":"{result}"}}],"structuredContent":{{"result":{result}}},"isError":false}}"#
        ))
    }
}

fn definition(name: &str, description: &str) -> String {
    let schema = |properties: &str, required: &str| {
        format!(
            r#"{{"type":"object","properties":{{{properties}}},"required":[{required}],"additionalProperties":false}}"#
        )
    };
    format!(
        r#"{{"name":{name},"description":{description},"inputSchema":{input},"outputSchema":{output},"annotations":{hints}}}"#,
        name = quote(name),
        description = quote(description),
        input = schema(r#""a":{"type":"number"},"b":{"type":"number"}"#, r#""a","b""#),
        output = schema(r#""result":{"type":"number"}"#, r#""result""#),
        hints = r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#,
    )
}

#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    Float(f64),
}

fn operands(arguments: &str) -> Result<(Number, Number), String> {
    let json = Json::parse(arguments).map_err(|error| format!("arguments: {error}"))?;
    let Value::Object(members) = &json.value else { return Err("arguments: not an object".into()) };
    if let Some((key, _)) = members.iter().find(|(key, _)| key != "a" && key != "b") {
        return Err(format!("{key}: unknown argument; the arguments are a and b"));
    }
    let number = |key: &str| {
        let value = json.get(key).ok_or_else(|| format!("{key}: missing"))?;
        let Value::Number(spelling) = value.value else { return Err(format!("{key}: not a number")) };
        Number::read(spelling).ok_or_else(|| format!("{key}: out of range"))
    };
    Ok((number("a")?, number("b")?))
}

fn compute(tool: &str, a: Number, b: Number) -> Result<Number, &'static str> {
    const TOO_LARGE: &str = "the result is too large";
    if tool == "divide" && b.float() == 0.0 {
        return Err("division by zero");
    }
    if let (Number::Integer(a), Number::Integer(b)) = (a, b) {
        match tool {
            "add" => return a.checked_add(b).map(Number::Integer).ok_or(TOO_LARGE),
            "subtract" => return a.checked_sub(b).map(Number::Integer).ok_or(TOO_LARGE),
            "multiply" => return a.checked_mul(b).map(Number::Integer).ok_or(TOO_LARGE),
            _ if a.checked_rem(b) == Some(0) => return a.checked_div(b).map(Number::Integer).ok_or(TOO_LARGE),
            _ => {}
        }
    }
    let (a, b) = (a.float(), b.float());
    let result = match tool {
        "add" => a + b,
        "subtract" => a - b,
        "multiply" => a * b,
        _ => a / b,
    };
    if result.is_finite() { Ok(Number::Float(result)) } else { Err(TOO_LARGE) }
}

impl Number {
    /// Reads a number, or returns `None` if it does not fit into an `i128` or an `f64`.
    fn read(spelling: &str) -> Option<Self> {
        if spelling.contains(['.', 'e', 'E']) {
            spelling.parse().ok().filter(|f: &f64| f.is_finite()).map(Self::Float)
        } else {
            spelling.parse().ok().map(Self::Integer)
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an integer that is combined with a float becomes a float")]
    fn float(self) -> f64 {
        match self {
            Self::Integer(i) => i as f64,
            Self::Float(f) => f,
        }
    }
}

/// Writes the number as JSON.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(i) => i.fmt(f),
            // `Debug` writes an exponent where `Display` would write up to 300 digits.
            Self::Float(x) if x.abs() >= 1e16 || (*x != 0.0 && x.abs() < 1e-5) => write!(f, "{x:?}"),
            Self::Float(x) => x.fmt(f),
        }
    }
}

portcullis_plugin::export_tools!(Calculator);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn call(tool: &str, arguments: &str) -> Result<String, Failure> {
        let answer = Calculator::configure("{}").unwrap().call(&mut (), tool, arguments)?;
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let text = json["content"][0]["text"].as_str().unwrap();
        assert_eq!((&json["content"][0]["type"], &json["isError"]), (&"text".into(), &false.into()));
        assert!(answer.contains(&format!(r#""structuredContent":{{"result":{text}}}"#)), "{answer}");
        Ok(text.into())
    }

    #[test]
    fn it_calculates() {
        for (tool, a, b, result) in [
            ("add", "2", "3", "5"),
            ("subtract", "2", "3", "-1"),
            ("multiply", "-4", "2.5", "-10"),
            ("divide", "7", "2", "3.5"),
            ("divide", "-6", "3", "-2"),
            ("add", "0.1", "0.2", "0.30000000000000004"),
            ("multiply", "1e15", "1e15", "1e30"),
            ("add", "9007199254740993", "1", "9007199254740994"),
            ("multiply", "1e200", "1e100", "1e300"),
            ("divide", "1", "3e300", "3.333333333333333e-301"),
            ("multiply", "0", "0.5", "0"),
            ("add", "1e2", "1", "101"),
        ] {
            assert_eq!(call(tool, &format!("{{\"a\":{a},\"b\":{b}}}")), Ok(result.into()), "{tool} {a} {b}");
        }
    }

    #[test]
    fn what_has_no_result_fails() {
        let max = i128::MAX.to_string();
        let min = i128::MIN.to_string();
        for (tool, a, b, why) in [
            ("divide", "1", "0", "division by zero"),
            ("divide", "0.5", "-0.0", "division by zero"),
            ("add", &max, "1", "the result is too large"),
            ("subtract", &min, "1", "the result is too large"),
            ("multiply", &max, "2", "the result is too large"),
            ("multiply", "1e300", "1e300", "the result is too large"),
        ] {
            assert_eq!(
                call(tool, &format!("{{\"a\":{a},\"b\":{b}}}")),
                Err(Failure::Failed(why.into())),
                "{tool} {a} {b}"
            );
        }
        // The one integer quotient that overflows is still a number.
        assert_eq!(call("divide", &format!("{{\"a\":{min},\"b\":-1}}")), Ok("1.7014118346046923e38".into()));
    }

    #[test]
    fn a_wrong_call_names_what_is_wrong() {
        assert_eq!(call("power", "{}"), Err(Failure::UnknownTool));
        for (arguments, why) in [
            (r#"{"a":1}"#, "b: missing"),
            (r#"{"a":"1","b":2}"#, "a: not a number"),
            (r#"{"a":1,"b":2,"c":3}"#, "c: unknown argument; the arguments are a and b"),
            (r#"{"a":1,"b":1e999}"#, "b: out of range"),
            ("[1,2]", "arguments: not an object"),
            (r#"{"a":1,"b":340282366920938463463374607431768211456}"#, "b: out of range"),
        ] {
            assert_eq!(call("add", arguments), Err(Failure::InvalidArguments(why.into())), "{arguments}");
        }
        assert!(
            matches!(call("add", r#"{"a":1,"a":2,"b":3}"#), Err(Failure::InvalidArguments(why)) if why.contains("same key twice"))
        );
    }

    #[test]
    fn the_definitions_are_tools_with_schemas_and_hints() {
        let definitions = Calculator::configure("{}").unwrap().definitions().unwrap();
        let definitions: Vec<serde_json::Value> = serde_json::from_str(&definitions).unwrap();
        assert_eq!(
            definitions.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(),
            ["add", "subtract", "multiply", "divide"]
        );
        for tool in definitions {
            assert_eq!(tool["inputSchema"]["required"], serde_json::json!(["a", "b"]));
            assert_eq!(tool["outputSchema"]["properties"]["result"]["type"], "number");
            assert_eq!(tool["annotations"]["readOnlyHint"], true);
        }
    }

    #[test]
    fn it_has_no_settings() {
        assert!(
            Calculator::configure(r#"{"precision":3}"#).err().unwrap().starts_with("settings.precision: unknown field")
        );
    }
}
