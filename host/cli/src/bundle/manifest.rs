//! The manifest of a bundle: its command, with every variable filled in by values that the caller chooses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::output::escape_hidden;

const FILE: &str = "manifest.json";

/// The longest manifest, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The longest text of all filled words and variables together, in bytes: each variable could be named many times.
const MAX_FILLED_BYTES: usize = 64 << 10;

/// The platform whose overrides count.
const PLATFORM: &str = if cfg!(target_os = "macos") { "darwin" } else { "linux" };

/// The members of the manifest that are used here.
#[derive(Deserialize)]
pub(super) struct Manifest {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    author: Value,
    server: Server,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    user_config: BTreeMap<String, UserSetting>,
}

#[derive(Deserialize)]
struct Server {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    entry_point: String,
    mcp_config: Option<Start>,
}

#[derive(Deserialize)]
struct Start {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    platform_overrides: BTreeMap<String, Override>,
}

#[derive(Deserialize)]
struct Override {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
}

/// A setting that the manifest asks the user for.
#[derive(Deserialize)]
pub(crate) struct UserSetting {
    /// `string`, `number`, `boolean`, `directory` or `file`.
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    /// The purpose of the entry.
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) default: Value,
    /// True if the server does not start without it.
    #[serde(default)]
    pub(crate) required: bool,
    /// True if its value is a secret.
    #[serde(default)]
    pub(crate) sensitive: bool,
}

/// The values for the variables of a manifest.
pub(crate) trait ManifestValues {
    /// Returns the folder of the user with this name: `HOME`, `DESKTOP`, `DOCUMENTS` or `DOWNLOADS`.
    fn folder(&self, name: &str) -> anyhow::Result<String>;

    /// Returns the values of a setting, several for one that takes several.
    fn setting(&mut self, name: &str, asked: &UserSetting) -> anyhow::Result<Vec<String>>;

    /// Reports whether a variable whose whole value is a secret setting is kept apart.
    fn keeps_secrets(&self) -> bool;
}

/// The command of a bundle and its variables, with every placeholder filled.
pub(super) struct FilledStart {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// The variables that the program is given.
    pub(super) variables: Vec<(String, String)>,
    /// The variables whose whole value is a secret setting, with the name of that setting.
    pub(super) secrets: Vec<(String, String)>,
}

impl Manifest {
    /// Reads the manifest of an unpacked bundle.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = File::open(folder.join(FILE)).context("it has no manifest.json")?;
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            bail!("its manifest.json has more than {MAX_BYTES} bytes");
        }
        serde_json::from_slice(&text).context("its manifest.json is not as the format says")
    }

    /// Returns the program of a bundle whose server is one: hosts make it executable.
    pub(super) fn program_of(&self, folder: &Path) -> Option<PathBuf> {
        let path = Path::new(&self.server.entry_point);
        let below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let program = folder.join(path);
        (self.server.kind == "binary" && below && program.is_file()).then_some(program)
    }

    /// Returns the command and its variables, filled in.
    pub(super) fn command(&self, folder: &Path, values: &mut dyn ManifestValues) -> anyhow::Result<FilledStart> {
        let start = self.server.mcp_config.as_ref();
        let start =
            start.context("its manifest.json has no server.mcp_config, so it does not say how it is started")?;
        let own = start.platform_overrides.get(PLATFORM);
        let command = own.and_then(|own| own.command.as_ref()).unwrap_or(&start.command);
        let words = own.and_then(|own| own.args.as_ref()).unwrap_or(&start.args);
        let mut variables = start.env.clone();
        variables.extend(own.and_then(|own| own.env.clone()).unwrap_or_default());
        let mut filled = FilledStart { command: Vec::new(), variables: Vec::new(), secrets: Vec::new() };
        for word in std::iter::once(command).chain(words) {
            match self.whole_setting(word)? {
                // A setting that takes several values becomes several arguments, or none.
                Some((name, asked)) => filled.command.extend(values.setting(name, asked)?),
                None => filled.command.push(self.filled(word, folder, values)?),
            }
        }
        for (name, value) in variables {
            match self.whole_setting(&value)? {
                Some((setting, asked)) if asked.sensitive && values.keeps_secrets() => {
                    filled.secrets.push((name, setting.to_owned()));
                }
                Some((setting, asked)) => {
                    let value = values.setting(setting, asked)?;
                    filled.variables.extend((!value.is_empty()).then(|| (name, value.join(","))));
                }
                None => filled.variables.push((name, self.filled(&value, folder, values)?)),
            }
        }
        let size = filled.command.iter().chain(filled.variables.iter().map(|(_, value)| value)).map(String::len);
        if size.sum::<usize>() > MAX_FILLED_BYTES {
            bail!("its manifest.json gives texts of more than {MAX_FILLED_BYTES} bytes");
        }
        Ok(filled)
    }

    /// Returns the setting that a text consists of, if it is one.
    fn whole_setting<'a>(&'a self, text: &'a str) -> anyhow::Result<Option<(&'a str, &'a UserSetting)>> {
        let name = text.strip_prefix("${user_config.").and_then(|rest| rest.strip_suffix('}'));
        name.filter(|name| !name.contains('}')).map(|name| Ok((name, self.setting(name)?))).transpose()
    }

    fn setting(&self, name: &str) -> anyhow::Result<&UserSetting> {
        let asked = self.user_config.get(name);
        asked.with_context(|| {
            format!("its manifest.json uses the setting {name:?}, which its user_config does not describe")
        })
    }

    /// Returns a text with its variables replaced, once: a value is not searched for variables.
    fn filled(&self, text: &str, folder: &Path, values: &mut dyn ManifestValues) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            out += before;
            match name {
                "__dirname" => out += &folder.to_string_lossy(),
                "HOME" | "DESKTOP" | "DOCUMENTS" | "DOWNLOADS" => out += &values.folder(name)?,
                "/" | "pathSeparator" => out.push('/'),
                _ => match name.strip_prefix("user_config.") {
                    Some(key) => out += &values.setting(key, self.setting(key)?)?.join(","),
                    None => bail!("its manifest.json names the variable {name:?}, which the format does not have"),
                },
            }
            if out.len() > MAX_FILLED_BYTES {
                bail!("its manifest.json gives a text of more than {MAX_FILLED_BYTES} bytes");
            }
            rest = after;
        }
        Ok(out + rest)
    }

    /// Returns the content of the manifest, in sentences.
    pub(super) fn about(&self) -> Vec<String> {
        let author = self.author.pointer("/name").and_then(Value::as_str).unwrap_or("nobody named");
        let mut about = vec![
            escape_hidden(&format!(
                "its manifest says: {} {} by {author}, a server of type {}, with {} tools",
                self.name,
                self.version,
                self.server.kind,
                self.tools.len()
            ))
            .into_owned(),
        ];
        about.extend(self.user_config.iter().map(|(key, asked)| {
            let secret = if asked.sensitive { ", which is secret" } else { "" };
            let text =
                format!("it asks the user for {key} ({}{secret}); a placeholder or its default was given", asked.kind);
            escape_hidden(&text).into_owned()
        }));
        about
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::command::evaluate::PlaceholderSettings;

    fn manifest(start: &Value) -> Manifest {
        serde_json::from_value(json!({
            "name": "b", "version": "1", "author": { "name": "A\u{1b}" },
            "server": { "type": "node", "entry_point": "s.js", "mcp_config": start },
            "user_config": {
                "key": { "type": "string", "sensitive": true }, "dir": { "type": "directory", "default": "${HOME}/x" },
                "level": { "type": "string", "default": "${user_config.key}" }, "n": { "type": "number", "default": 3 },
            },
        }))
        .unwrap()
    }

    fn command(start: &Value) -> anyhow::Result<FilledStart> {
        manifest(start).command(Path::new("/bundle"), &mut PlaceholderSettings(Path::new("/home/alex/work").into()))
    }

    #[test]
    fn the_variables_of_a_manifest_are_filled_with_nothing_of_the_user() {
        let start = json!({
            "command": "${__dirname}/run", "args": ["${user_config.dir}", "--n=${user_config.n}", "${HOME}", "${open"],
            "env": { "KEY": "${user_config.key}", "LEVEL": "${user_config.level}", "A": "1" },
            "platform_overrides": { PLATFORM: { "env": { "A": "2" } }, "win32": { "command": "x.exe" } },
        });
        let FilledStart { command: words, variables, .. } = command(&start).unwrap();
        assert_eq!(words, ["/bundle/run", "/home/alex/work", "--n=3", "/home/alex/work", "${open"]);
        let values: Vec<_> = variables.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["2", "placeholder-key", "placeholder-level"]);
        let about = manifest(&start).about().join("; ");
        assert!(about.contains("by A\\u{1b}") && about.contains("key (string, which is secret)"), "{about}");
    }

    #[test]
    fn a_manifest_that_cannot_be_filled_says_why() {
        for (start, why) in [
            (json!({ "command": "${PATH}" }), "names the variable \"PATH\""),
            (json!({ "command": "${user_config.absent}" }), "the setting \"absent\""),
            (json!({ "command": "${__dirname}".repeat(10_000) }), "more than 65536 bytes"),
            (json!(null), "no server.mcp_config"),
        ] {
            let error = command(&start).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
