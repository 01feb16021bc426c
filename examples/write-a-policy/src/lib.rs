//! Denies every call whose arguments name a path outside one folder: `settings = { under = "/srv/project" }`.

wit_bindgen::generate!({ path: "../../wit", world: "policy-plugin" });

use std::cell::OnceCell;

use exports::portcullis::plugin::policy::{Denial, Guest, Verdict};
use portcullis::plugin::calls::Call;
use serde_json::Value;

thread_local! {
    static UNDER: OnceCell<String> = const { OnceCell::new() };
}

struct StayInside;

impl Guest for StayInside {
    fn configure(settings: String) -> Result<(), String> {
        let settings: Value = serde_json::from_str(&settings).map_err(|error| error.to_string())?;
        let under = settings["under"].as_str().filter(|path| path.starts_with('/'));
        let under = under.ok_or("settings.under: an absolute path is missing")?.trim_end_matches('/').to_string();
        UNDER.with(|cell| cell.set(under)).map_err(|_| "configured twice".to_string())
    }

    fn check(call: Call) -> Result<Verdict, String> {
        let under = UNDER.with(|cell| cell.get().cloned()).ok_or("not configured")?;
        let arguments: Value = serde_json::from_str(&call.arguments()).map_err(|error| error.to_string())?;
        Ok(match path_outside(&arguments, &under) {
            None => Verdict::Pass,
            Some(path) => Verdict::Deny(Denial {
                code: "outside".to_string(),
                message: format!("{path} is not under {under}"),
            }),
        })
    }
}

/// Returns the first string anywhere in the arguments that looks like a path and leads out of the folder.
fn path_outside<'a>(value: &'a Value, under: &str) -> Option<&'a str> {
    match value {
        Value::String(text) => {
            let inside = text.strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let climbs = text.split(['/', '\\']).any(|part| part == "..");
            let is_path = text.starts_with(['/', '~', '\\']) || text.starts_with("file:");
            (climbs || (is_path && !inside)).then_some(text)
        }
        Value::Array(items) => items.iter().find_map(|item| path_outside(item, under)),
        Value::Object(members) => members.values().find_map(|member| path_outside(member, under)),
        _ => None,
    }
}

export!(StayInside);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_the_folder_is_found_at_any_depth() {
        for (arguments, outside) in [
            (r#"{"path":"/srv/project/a","text":"hello"}"#, None),
            (r#"{"path":"/srv/project"}"#, None),
            (r#"{"path":"/srv/projects"}"#, Some("/srv/projects")),
            (r#"{"edits":[{"path":"/etc/passwd"}]}"#, Some("/etc/passwd")),
            (r#"{"path":"/srv/project/../x"}"#, Some("/srv/project/../x")),
            (r#"{"uri":"file:///etc/passwd"}"#, Some("file:///etc/passwd")),
        ] {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert_eq!(path_outside(&arguments, "/srv/project"), outside, "{arguments}");
        }
    }
}
