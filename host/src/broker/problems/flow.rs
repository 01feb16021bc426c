//! Labels in the settings of the built-in policy `flow` that nothing in a session ever has: its rule would never ask.

use serde_json::Value;

use crate::config::{Config, Instructions, PluginConfig, PluginRef};
use crate::flow::{INSTRUCTIONS, PRIVATE, UNTRUSTED};
use crate::name::ProfileName;

/// The settings that name labels.
const SETTINGS: [&str; 2] = ["untrusted-labels", "private-labels"];

/// Returns a sentence for each label that no source gives, and for each profile under which no session has the label of
/// instructions although a policy is about it.
pub(super) fn unknown(config: &Config) -> Vec<String> {
    let is_flow = |policy: &&PluginConfig| policy.plugin == PluginRef::Builtin("flow".to_owned());
    let labels = |key: &'static str| {
        let lists =
            config.policies.iter().filter(is_flow).filter_map(move |policy| policy.settings.get(key)?.as_array());
        lists.flatten().filter_map(Value::as_str).map(move |label| (key, label))
    };
    let fault = |(key, label): (&str, &str)| match label {
        INSTRUCTIONS => without_marks(config, key),
        PRIVATE | UNTRUSTED => Vec::new(),
        _ if config.sources.values().any(|source| source.labels.iter().flatten().any(|given| given == label)) => {
            Vec::new()
        }
        _ => vec![format!(
            "`builtin:flow`: `{key}` has {label:?}, which is a label of no source: add `labels = [{label:?}]` to the source \
             that it is about"
        )],
    };
    SETTINGS.into_iter().flat_map(labels).flat_map(fault).collect()
}

fn without_marks(config: &Config, key: &str) -> Vec<String> {
    let unmarked = config.profiles.iter().filter(|(_, profile)| profile.instructions != Instructions::Mark);
    let sentence = |name: &ProfileName| {
        format!(
            "`builtin:flow`: `{key}` has {INSTRUCTIONS:?}, which no session under profile `{name}` has: add `instructions = \
             \"mark\"` to `[profiles.{name}]`"
        )
    };
    unmarked.map(|(name, _)| sentence(name)).collect()
}
