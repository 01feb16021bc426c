//! The Python index in the user's own configuration of uv, or else of pip. The broker takes packages from one index, so a
//! configuration with several is refused: a package of a private index must not come from the public one.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{RegistryConfig, Variables, read};

/// The variables of uv, and of pip, that name the one index.
const UV_INDEX: [&str; 2] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL"];
const PIP_INDEX: [&str; 1] = ["PIP_INDEX_URL"];

/// The variables of uv that name further places for packages, or allow no index, and its settings in files that do.
const UV_OTHER_VARIABLES: [&str; 4] = ["UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"];
const UV_OTHER_SETTINGS: [&str; 3] = [EXTRA, "find-links", "no-index"];

/// The variable of pip that names further indexes. Other settings of pip do not count: uv would not follow them either,
/// and the index is taken over for those who have only pip configured.
const PIP_OTHER_VARIABLES: [&str; 1] = ["PIP_EXTRA_INDEX_URL"];

/// The setting in files of either that names further indexes.
const EXTRA: &str = "extra-index-url";

/// Reads the configuration of uv. Where it names no index, that of pip counts. `system` is the folder of the machine's
/// configuration, `/etc`.
///
/// # Errors
/// If a file is there and cannot be read, or names indexes that the broker cannot use.
pub(super) fn configured(
    home: Option<&Path>,
    system: &Path,
    variables: Variables<'_>,
) -> Result<RegistryConfig, String> {
    let folder = variables("XDG_CONFIG_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| home.map(|home| home.join(".config")));
    let of_uv = of_uv(folder.as_deref(), system, variables)?;
    let pip = PipSettings::read([home, folder.as_deref()], system, variables)?;
    let address = match of_uv {
        Some(address) => Some(address),
        None => pip.index(variables)?,
    };
    let certificates = variables("SSL_CERT_FILE").or_else(|| variables("PIP_CERT")).or_else(|| pip.find("cert"));
    let has_proxy = pip.find("proxy").is_some();
    Ok(RegistryConfig { address, scopes: Vec::new(), certificates, has_credentials: false, has_proxy })
}

fn of_uv(folder: Option<&Path>, system: &Path, variables: Variables<'_>) -> Result<Option<String>, String> {
    refuse_others(UV_OTHER_VARIABLES, variables)?;
    let mut address = UV_INDEX.iter().find_map(|name| variables(name)).map(without_name);
    let named = variables("UV_CONFIG_FILE").map(PathBuf::from);
    let files = match &named {
        Some(file) => vec![file.clone()],
        None => {
            let system = ["xdg/uv/uv.toml", "uv/uv.toml"].map(|name| system.join(name));
            folder.map(|folder| folder.join("uv/uv.toml")).into_iter().chain(system).collect()
        }
    };
    for file in files {
        let Some(text) = read(&file)? else {
            if named.is_some() {
                return Err(format!("{}, which the variable `UV_CONFIG_FILE` names, is not there", file.display()));
            }
            continue;
        };
        let index = index_of(&file, &text)?;
        address = address.or(index);
    }
    Ok(address)
}

/// Returns the index in a file of uv.
fn index_of(file: &Path, text: &str) -> Result<Option<String>, String> {
    let place = file.display();
    // What the file says may be a secret, so no line of it is repeated.
    let settings: Table =
        toml::from_str(text).map_err(|error| format!("{place} is not valid TOML: {}", error.message()))?;
    let mut found = Vec::new();
    for table in [Some(&settings), settings.get("pip").and_then(Value::as_table)].into_iter().flatten() {
        if let Some(key) = UV_OTHER_SETTINGS.iter().find(|key| table.get(**key).is_some_and(is_set)) {
            return Err(one_index_only(&format!("{place} sets `{key}`")));
        }
        match table.get("index-url") {
            None => {}
            Some(Value::String(url)) => found.push(url.clone()),
            Some(_) => return Err(one_index_only(&format!("{place} has an `index-url` that is no text"))),
        }
    }
    let indexes: &[Value] = match settings.get("index") {
        None => &[],
        Some(Value::Array(indexes)) => indexes.as_slice(),
        Some(_) => return Err(one_index_only(&format!("{place} has an `index` that is no `[[index]]`"))),
    };
    for index in indexes {
        let is = |key| index.get(key).and_then(Value::as_bool) == Some(true);
        match index.get("url").and_then(Value::as_str) {
            // uv uses such an index only for packages that a project takes from it.
            _ if is("explicit") && !is("default") => {}
            Some(url) if is("default") => found.push(url.to_owned()),
            _ => return Err(one_index_only(&format!("{place} has an `[[index]]` without `default = true`"))),
        }
    }
    found.dedup();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => Err(one_index_only(&format!("{place} names several indexes"))),
    }
}

/// Reports whether a setting says anything.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Boolean(set) => *set,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// The settings of pip's files. Of two with the same key, the first one holds.
struct PipSettings(Vec<(String, String, PathBuf)>);

impl PipSettings {
    fn read([home, folder]: [Option<&Path>; 2], system: &Path, variables: Variables<'_>) -> Result<Self, String> {
        let named = variables("PIP_CONFIG_FILE").map(PathBuf::from);
        if named.as_deref() == Some(Path::new("/dev/null")) {
            // pip reads no file then.
            return Ok(Self(Vec::new()));
        }
        let user = [folder.map(|folder| folder.join("pip/pip.conf")), home.map(|home| home.join(".pip/pip.conf"))];
        let system = ["xdg/pip/pip.conf", "pip.conf"].map(|name| system.join(name));
        let mut settings = Vec::new();
        for file in named.into_iter().chain(user.into_iter().flatten()).chain(system) {
            let text = read(&file)?.unwrap_or_default();
            settings.extend(pip_settings(&text).into_iter().map(|(key, value)| (key, value, file.clone())));
        }
        Ok(Self(settings))
    }

    fn find(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(key, ..)| key == name).map(|(_, value, _)| value.clone())
    }

    fn index(&self, variables: Variables<'_>) -> Result<Option<String>, String> {
        refuse_others(PIP_OTHER_VARIABLES, variables)?;
        if let Some((_, _, file)) = self.0.iter().find(|(key, value, _)| key == EXTRA && !value.is_empty()) {
            return Err(one_index_only(&format!("{} sets `{EXTRA}`", file.display())));
        }
        let index = PIP_INDEX.iter().find_map(|name| variables(name)).or_else(|| self.find("index-url"));
        match index {
            Some(index) if index.split_whitespace().count() > 1 => {
                Err(one_index_only("the `index-url` of pip is more than one word"))
            }
            index => Ok(index),
        }
    }
}

/// Reads the settings of a file of pip, as Python's `configparser` does: `key = value` or `key: value`, where an indented
/// line continues a value. Sections are ignored: the keys that matter are unique.
fn pip_settings(text: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';', '['])) {
        if line.starts_with([' ', '\t'])
            && let Some((_, value)) = settings.last_mut()
        {
            *value = format!("{value} {}", line.trim()).trim().to_owned();
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            settings.push((key.trim().to_ascii_lowercase().replace('_', "-"), value));
        }
    }
    settings
}

/// Returns the URL of an index that may be written as `name=URL`.
fn without_name(index: String) -> String {
    match index.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => url.to_owned(),
        _ => index,
    }
}

/// Refuses variables that name more than the one index.
fn refuse_others<const N: usize>(names: [&str; N], variables: Variables<'_>) -> Result<(), String> {
    match names.into_iter().find(|name| variables(name).is_some()) {
        Some(name) => Err(one_index_only(&format!("the variable `{name}` is set"))),
        None => Ok(()),
    }
}

/// Returns the reason for refusing a configuration, with the way out.
fn one_index_only(what: &str) -> String {
    format!(
        "{what}, but the broker takes packages from one index only, which must not be another one than you mean; take that \
         setting out, or start the broker without it, and name the index that has all packages in the variable \
         `UV_DEFAULT_INDEX`, or as `[[index]]` with `default = true` in the file that `UV_CONFIG_FILE` names"
    )
}

#[cfg(test)]
mod tests;
