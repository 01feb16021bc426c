//! Strict parsing of settings, with errors that name the field.

use serde::de::DeserializeOwned;

/// Parses the settings that `configure` receives. Use `#[serde(deny_unknown_fields)]` on every struct: otherwise a
/// misspelt key is silently ignored, and with it the rule that it was meant to set.
///
/// # Errors
/// Names the first field that does not fit, as in `settings.deny[2].tool: …`.
pub fn parse<T: DeserializeOwned>(settings: &str) -> Result<T, String> {
    read("settings", settings)
}

/// Checks that there are no settings, for a plugin that takes none.
///
/// # Errors
/// Names the first setting that was given.
pub fn none(settings: &str) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    parse::<Nothing>(settings).map(|Nothing {}| ())
}

/// Parses `text`, in whose errors the value is called `root`.
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

/// Removes line and column, which refer to JSON that the host generated and that no user has seen.
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
            "settings.only[1]: ' ' is not allowed in the glob `b c`: only `*` and `?` are special"
        );
        assert!(error(r#"{"max-calls":300}"#).starts_with("settings.max-calls: invalid value: integer `300`"));
        assert_eq!(error(r#"{"onyl":[]}"#), "settings.onyl: unknown field `onyl`, expected `max-calls` or `only`");
        assert!(error("[1, 2").starts_with("settings"));
        assert!(error("{} {}").starts_with("settings: trailing"));
        assert_eq!(parse::<Settings>("{}").unwrap(), Settings { max_calls: 0, only: vec![] });
    }
}
