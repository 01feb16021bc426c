//! Settings: strict, and an error names the field.

use serde::de::DeserializeOwned;

/// Reads the settings that `configure` was given. Use `#[serde(deny_unknown_fields)]` on every struct: a misspelt key
/// is otherwise a rule that does not exist.
///
/// # Errors
/// The first field that does not fit, as `settings.deny[2].tool: …`.
pub fn parse<T: DeserializeOwned>(settings: &str) -> Result<T, String> {
    read("settings", settings)
}

/// For a plugin that has none.
///
/// # Errors
/// The first setting that there is.
pub fn none(settings: &str) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    parse::<Nothing>(settings).map(|Nothing {}| ())
}

/// Reads what is called `root`.
pub(crate) fn read<T: DeserializeOwned>(root: &str, text: &str) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => root.to_string(),
            path => format!("{root}.{path}"),
        };
        format!("{field}: {}", without_position(&error.inner().to_string()))
    })?;
    reader.end().map_err(|error| format!("{root}: {error}"))?;
    Ok(value)
}

/// Line and column point into JSON that the host made; nobody has seen it.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(what, _)| what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Settings {
        #[serde(default)]
        max_calls: u8,
        #[serde(default)]
        only: Vec<crate::NameGlob>,
    }

    #[test]
    fn an_error_names_the_field_and_the_reason() {
        let error = |text| parse::<Settings>(text).unwrap_err();
        assert_eq!(
            error(r#"{"only":["a","b c"]}"#),
            "settings.only[1]: ' ' has no place in the glob `b c`: only `*` and `?` are special"
        );
        assert!(error(r#"{"max-calls":300}"#).starts_with("settings.max-calls: invalid value: integer `300`"));
        assert_eq!(error(r#"{"onyl":[]}"#), "settings.onyl: unknown field `onyl`, expected `max-calls` or `only`");
        assert!(error("[1, 2").starts_with("settings"));
        assert!(error("{} {}").starts_with("settings: trailing"));
        assert_eq!(parse::<Settings>("{}").unwrap(), Settings { max_calls: 0, only: vec![] });
    }
}
