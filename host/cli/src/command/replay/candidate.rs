//! The policies that judge again: the configured ones, with a candidate in place of one or all of them.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use portcullis::call::Phase;
use portcullis::config::{Config, PluginConfig, PluginRef};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::command::plugin;

/// The policies of a configuration. Its other parts are ignored.
#[derive(Deserialize)]
struct PoliciesOfFile {
    #[serde(default)]
    policies: Vec<Value>,
}

/// Returns the policies to judge with. Those that run in shadow decide nothing and are left out.
///
/// # Errors
/// The candidate cannot be read, is not a policy, or it is not clear which policy it replaces.
pub(crate) fn policies(
    config: &Config,
    candidate: Option<&str>,
    replaces: Option<&str>,
) -> anyhow::Result<Vec<PluginConfig>> {
    let mut policies = config.policies.clone();
    match candidate {
        Some(file) if file.ends_with(".toml") => {
            if let Some(name) = replaces {
                bail!("{file} has all policies, so none of them replaces `{name}`: leave `--replaces` out");
            }
            policies = of_configuration(Path::new(file)).with_context(|| file.to_owned())?;
        }
        Some(name) => {
            let replaced = replaced(&policies, name, replaces)?;
            let candidate = entry(name, replaced.and_then(|at| policies.get(at)))?;
            match replaced.and_then(|at| policies.get_mut(at)) {
                Some(place) => *place = candidate,
                None => policies.push(candidate),
            }
        }
        None => {}
    }
    policies.retain(|policy| !policy.shadow);
    if policies.is_empty() {
        match candidate {
            Some(file) => {
                bail!("no policy of {file} would judge: add `[[policies]]` without `mode = \"shadow\"` to it")
            }
            None => bail!("no policy would judge: the configuration has none, so name one with `--candidate FILE`"),
        }
    }
    Ok(policies)
}

fn of_configuration(file: &Path) -> anyhow::Result<Vec<PluginConfig>> {
    let text = std::fs::read_to_string(file).context("it cannot be read")?;
    let PoliciesOfFile { policies } = toml::from_str(&text).map_err(|error| anyhow!("{error}"))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let builder = policies.into_iter().fold(Config::builder(folder), |builder, table| builder.policy(table));
    Ok(builder.build()?.policies)
}

/// Returns the place of the policy that a candidate replaces; `None` if it comes as a further one.
fn replaced(policies: &[PluginConfig], candidate: &str, replaces: Option<&str>) -> anyhow::Result<Option<usize>> {
    let wanted = match replaces {
        Some(name) => name,
        None if candidate.ends_with(".cedar") => "builtin:cedar",
        None => candidate.rsplit('/').next().unwrap_or(candidate),
    };
    let is_named = |policy: &PluginConfig| {
        let name = policy.plugin.to_string();
        let file = match &policy.plugin {
            PluginRef::Path(path) | PluginRef::Pinned(path, _) => path.file_name().and_then(|file| file.to_str()),
            PluginRef::Builtin(_) | PluginRef::Native(_) | PluginRef::Oci(_) => None,
        };
        name == wanted || file == Some(wanted)
    };
    let found: Vec<usize> = (0..).zip(policies).filter(|(_, policy)| is_named(policy)).map(|(at, _)| at).collect();
    let names = || policies.iter().map(|policy| format!("`{}`", policy.plugin)).collect::<Vec<_>>().join(", ");
    match (found.as_slice(), replaces) {
        ([at], _) => Ok(Some(*at)),
        ([], None) => Ok(None),
        ([], Some(name)) => bail!("no configured policy is `{name}`; there is {}", names()),
        _ => bail!(
            "the configuration has {} policies `{wanted}`: write the whole list of `[[policies]]` into a file FILE.toml, and name \
             that one instead of {candidate}",
            found.len()
        ),
    }
}

/// Returns the candidate with the settings and permissions of the policy that it replaces.
fn entry(candidate: &str, replaced: Option<&PluginConfig>) -> anyhow::Result<PluginConfig> {
    let new = || PluginConfig {
        plugin: PluginRef::Builtin("cedar".to_owned()),
        settings: json!({}),
        on: vec![Phase::Call],
        shadow: false,
        grant: Vec::new(),
        file: None,
    };
    let is_cedar = candidate.ends_with(".cedar");
    // Other policies have no settings that Cedar knows.
    let model = replaced.filter(|replaced| !is_cedar || replaced.plugin == new().plugin);
    let mut entry = PluginConfig { shadow: false, ..model.cloned().unwrap_or_else(new) };
    if is_cedar {
        let text = std::fs::read_to_string(candidate).with_context(|| format!("{candidate} cannot be read"))?;
        if let Some(settings) = entry.settings.as_object_mut() {
            settings.insert("policies".to_owned(), text.into());
        }
        return Ok(entry);
    }
    let is_component = [".wasm", ".cwasm"].iter().any(|end| candidate.ends_with(end));
    if !is_component && !["builtin:", "oci:"].iter().any(|start| candidate.starts_with(start)) {
        bail!("{candidate} is not a policy: name a .cedar, .wasm or .toml file, or builtin:NAME");
    }
    entry.plugin = plugin::named(candidate)?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn config(policies: &[Value]) -> Config {
        let builder = policies.iter().fold(Config::builder("/srv"), |builder, table| builder.policy(table.clone()));
        builder.build().unwrap()
    }

    fn names(policies: &[PluginConfig]) -> Vec<String> {
        policies.iter().map(|policy| policy.plugin.to_string()).collect()
    }

    #[test]
    fn a_component_takes_the_place_and_the_settings_of_the_policy_with_its_file_name() {
        let limits = json!({ "plugin": "old/limits.wasm", "settings": { "most": 3 }, "grant": ["log"] });
        let config = config(&[json!({ "plugin": "builtin:rules" }), limits]);
        let policies = policies(&config, Some("/new/limits.wasm"), None).unwrap();
        assert_eq!(names(&policies), ["builtin:rules", "/new/limits.wasm"]);
        let candidate = policies.last().unwrap();
        assert_eq!((&candidate.settings, &candidate.grant), (&json!({ "most": 3 }), &vec!["log".to_owned()]));
    }

    #[test]
    fn a_candidate_that_replaces_nothing_comes_as_a_further_policy() {
        let config = config(&[json!({ "plugin": "builtin:rules" })]);
        let found = policies(&config, Some("/new/other.wasm"), None).unwrap();
        assert_eq!(names(&found), ["builtin:rules", "/new/other.wasm"]);
        let found = policies(&config, Some("/new/other.wasm"), Some("builtin:rules")).unwrap();
        assert_eq!(names(&found), ["/new/other.wasm"]);
    }

    #[test]
    fn what_is_not_clear_is_refused_with_the_way_out() {
        let none = config(&[json!({ "plugin": "builtin:rules", "mode": "shadow" })]);
        let twice = config(&[json!({ "plugin": "builtin:rules" }), json!({ "plugin": "builtin:rules" })]);
        for (config, candidate, replaces, expected) in [
            (&none, None, None, "--candidate FILE"),
            (&twice, Some("builtin:rules"), None, "FILE.toml, and name that one instead of builtin:rules"),
            (&twice, Some("a.wasm"), Some("cedar"), "there is `builtin:rules`"),
            (&twice, Some("a.rego"), None, ".cedar, .wasm or .toml"),
            (&twice, Some("missing.cedar"), None, "missing.cedar cannot be read"),
            (&twice, Some("missing.toml"), None, "missing.toml"),
            (&twice, Some("x.toml"), Some("builtin:rules"), "leave `--replaces` out"),
        ] {
            let error = policies(config, candidate, replaces).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
