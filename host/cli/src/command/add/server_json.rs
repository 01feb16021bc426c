//! `server.json`, in which a server is described for registries of MCP: its packages, its remote addresses, and the
//! values that it needs. Specification: the MCP Registry's `server.json`, schemas of 2025.

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::described::{DescribedSource, SettingRequest, Settings, secret_name};
use crate::output::escape_hidden;

/// The largest description, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The largest number of values of one kind.
const MAX_VALUES: usize = 256;

/// The kinds of packages that can be started, in the order in which they are preferred.
const KINDS: [&str; 2] = ["npm", "pypi"];

#[derive(Deserialize)]
struct Server {
    #[serde(default)]
    name: String,
    #[serde(default)]
    packages: Vec<Package>,
    #[serde(default)]
    remotes: Vec<Remote>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    /// Earlier schemas call it `registry_type` or `registry_name`.
    #[serde(alias = "registry_type", alias = "registry_name")]
    registry_type: String,
    #[serde(alias = "name")]
    identifier: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default, alias = "runtime_arguments")]
    runtime_arguments: Vec<Input>,
    #[serde(default, alias = "package_arguments")]
    package_arguments: Vec<Input>,
    #[serde(default, alias = "environment_variables")]
    environment_variables: Vec<Input>,
}

#[derive(Deserialize)]
struct Remote {
    url: String,
    #[serde(default)]
    headers: Vec<Input>,
}

/// A value: of a variable, a header or an argument.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    value_hint: Option<String>,
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default, alias = "is_required")]
    is_required: bool,
    #[serde(default, alias = "is_secret")]
    is_secret: bool,
}

/// Returns the source for a description. `more` are arguments that the user adds.
pub(super) fn source(
    text: &[u8],
    name: &str,
    more: &[String],
    settings: &mut Settings,
) -> anyhow::Result<DescribedSource> {
    let mut whole: serde_json::Value = serde_json::from_slice(text).context("the description is not JSON")?;
    // A registry's API wraps the description.
    if let Some(inner) = whole.get_mut("server").filter(|inner| inner.is_object()) {
        whole = inner.take();
    }
    let server: Server = serde_json::from_value(whole).context("the description is not a server.json")?;
    let package = KINDS.iter().find_map(|kind| server.packages.iter().find(|package| package.registry_type == *kind));
    let mut described = match (package, server.remotes.first()) {
        (Some(package), _) => of_package(package, name, more, settings)?,
        (None, Some(remote)) => of_remote(remote, name, settings)?,
        (None, None) => {
            let kinds: Vec<_> = server.packages.iter().map(|package| escape_hidden(&package.registry_type)).collect();
            bail!(
                "the description has no package of npm or PyPI and no remote address; it has {}",
                if kinds.is_empty() { "nothing to start".to_owned() } else { kinds.join(", ") }
            );
        }
    };
    described.notes.insert(0, format!("the description is of {}", escape_hidden(&server.name)));
    Ok(described)
}

fn of_package(
    package: &Package,
    name: &str,
    more: &[String],
    settings: &mut Settings,
) -> anyhow::Result<DescribedSource> {
    let mut described = DescribedSource::default();
    let version = package.version.as_deref().filter(|version| *version != "latest");
    let pinned = version.map_or_else(|| package.identifier.clone(), |v| format!("{}@{v}", package.identifier));
    if !super::is_package(&pinned) {
        bail!("{:?} in the description is not the name of a package", package.identifier);
    }
    let command = &mut described.source.command;
    let runner: &[&str] = if package.registry_type == "npm" { &["npx", "-y"] } else { &["uvx"] };
    command.extend(runner.iter().map(|word| (*word).to_owned()));
    for input in package.runtime_arguments.iter().take(MAX_VALUES) {
        // `npx -y` is how every package is started here.
        command.extend(words(input, settings)?.into_iter().filter(|word| word != "-y" && word != "--yes"));
    }
    command.push(pinned);
    for input in package.package_arguments.iter().take(MAX_VALUES) {
        command.extend(words(input, settings)?);
    }
    command.extend_from_slice(more);
    for input in package.environment_variables.iter().take(MAX_VALUES) {
        let variable = input.name.as_deref().context("the description has a variable without a name")?;
        match value(input, variable, settings) {
            Some(Value::Plain(text)) => described.source.env.push((variable.to_owned(), text)),
            Some(Value::Secret) => {
                described.source.secret_env.push((variable.to_owned(), secret_name(name, variable)));
                described.notes.extend(whole_secret(input, variable));
            }
            None => {}
        }
    }
    Ok(described)
}

fn of_remote(remote: &Remote, name: &str, settings: &mut Settings) -> anyhow::Result<DescribedSource> {
    if remote.url.contains('{') {
        bail!("its address {:?} has variables: add the source with the whole address instead", remote.url);
    }
    let mut described = DescribedSource::default();
    described.source.url = Some(remote.url.clone());
    for input in remote.headers.iter().take(MAX_VALUES) {
        let header = input.name.as_deref().context("the description has a header without a name")?;
        match value(input, header, settings) {
            Some(Value::Plain(text)) => described.source.headers.push((header.to_owned(), text)),
            Some(Value::Secret) => {
                described.source.secret_headers.push((header.to_owned(), secret_name(name, header)));
                described.notes.extend(whole_secret(input, header));
            }
            None => {}
        }
    }
    Ok(described)
}

enum Value {
    Plain(String),
    /// A secret, which the store keeps.
    Secret,
}

impl Input {
    /// Returns the value that the description fixes.
    fn fixed(&self) -> Option<&String> {
        self.value.as_ref().filter(|value| !value.contains('{'))
    }

    /// Returns a value in the place of the only variable of the description's text, as in `type=bind,src={path}`. With
    /// several variables, or none, the value is the whole text.
    fn filled(&self, value: String) -> String {
        let parts = self.value.as_deref().and_then(|template| {
            let (before, rest) = template.split_once('{')?;
            let (_, after) = rest.split_once('}')?;
            (!after.contains('{')).then_some((before, after))
        });
        match parts {
            Some((before, after)) => format!("{before}{value}{after}"),
            None => value,
        }
    }
}

/// Returns a note if the description wants more text in a value than the secret itself.
fn whole_secret(input: &Input, key: &str) -> Option<String> {
    let template = input.value.as_deref().filter(|template| !template.starts_with('{') || !template.ends_with('}'))?;
    Some(format!(
        "the description writes `{}` as `{}`: store the whole text, with what stands around the variable",
        escape_hidden(key),
        escape_hidden(template)
    ))
}

/// Returns the value of a variable or a header. A secret is not given on the command line, which others can read.
fn value(input: &Input, key: &str, settings: &mut Settings) -> Option<Value> {
    if let Some(fixed) = input.fixed() {
        return Some(Value::Plain(fixed.clone()));
    }
    if input.is_secret {
        return Some(Value::Secret);
    }
    let default = input.default.clone();
    let asked = SettingRequest { name: key, description: &input.description, default, required: input.is_required };
    settings.values_of(&asked).pop().map(|value| Value::Plain(input.filled(value)))
}

/// Returns the words of an argument.
fn words(input: &Input, settings: &mut Settings) -> anyhow::Result<Vec<String>> {
    let named = input.kind.as_deref() == Some("named");
    let key = input.name.as_deref().filter(|_| named).or(input.value_hint.as_deref()).unwrap_or("argument");
    if input.is_secret {
        bail!(
            "the description puts the secret {key:?} among the arguments, which every process of this machine can read: \
             add the source by its command, if it also takes a variable"
        );
    }
    let flag = named.then(|| input.name.clone()).flatten();
    if flag.is_some() && input.value.is_none() && input.value_hint.is_none() && input.default.is_none() {
        // A named argument without a value is a switch; the user may turn it on.
        let asked =
            SettingRequest { name: key.trim_start_matches('-'), description: "", default: None, required: false };
        let on = input.is_required || settings.values_of(&asked).iter().any(|value| value == "true");
        return Ok(flag.filter(|_| on).into_iter().collect());
    }
    let values = match input.fixed() {
        Some(fixed) => vec![fixed.clone()],
        None => {
            let (name, default) = (key.trim_start_matches('-'), input.default.clone());
            let asked = SettingRequest { name, description: &input.description, default, required: input.is_required };
            settings.values_of(&asked).into_iter().map(|value| input.filled(value)).collect()
        }
    };
    Ok(values.into_iter().flat_map(|value| flag.clone().into_iter().chain([value])).collect())
}
