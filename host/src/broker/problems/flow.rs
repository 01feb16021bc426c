//! Settings of the built-in policy `flow` about something that no session ever has: its rule would never ask.

use serde_json::Value;

use crate::config::{Config, Instructions, PluginConfig, PluginRef};
use crate::flow::{INSTRUCTIONS, PRIVATE, UNTRUSTED};
use crate::name::ProfileName;

/// The settings that name labels.
const LABELS: [&str; 2] = ["untrusted-labels", "private-labels"];

/// Returns a sentence for each label that no source gives, and for each profile under which no session is known to have
/// seen an instruction although a policy is about nothing else, or says that it is about that.
pub(super) fn unknown(config: &Config) -> Vec<String> {
    let is_flow = |policy: &&PluginConfig| policy.plugin == PluginRef::Builtin("flow".to_owned());
    let policies = || config.policies.iter().filter(is_flow);
    let labels = |key: &'static str| {
        let lists = policies().filter_map(move |policy| policy.settings.get(key)?.as_array());
        lists.flatten().filter_map(Value::as_str).map(move |label| (key, label))
    };
    let is_given =
        |label: &str| config.sources.values().any(|source| source.labels.iter().flatten().any(|given| given == label));
    let unknown = |(key, label): (&str, &str)| {
        let is_known = [INSTRUCTIONS, PRIVATE, UNTRUSTED].contains(&label) || is_given(label);
        (!is_known).then(|| {
            format!(
                "`builtin:flow`: `{key}` has {label:?}, which is a label of no source: add `labels = [{label:?}]` to the \
                 source that it is about"
            )
        })
    };
    let unmarked = if policies().any(needs_marks) { without_marks(config) } else { Vec::new() };
    LABELS.into_iter().flat_map(labels).filter_map(unknown).chain(unmarked).collect()
}

/// Returns true if the policy says that it asks after text that reads like an instruction, or asks after nothing else.
fn needs_marks(policy: &PluginConfig) -> bool {
    let is = |key: &str, value: &str| policy.settings.get(key).and_then(Value::as_str) == Some(value);
    is(INSTRUCTIONS, "any") || (is(UNTRUSTED, "off") && is(PRIVATE, "off"))
}

/// Returns a sentence for each profile that does not mark such text.
fn without_marks(config: &Config) -> Vec<String> {
    let unmarked = config.profiles.iter().filter(|(_, profile)| profile.instructions != Instructions::Mark);
    let sentence = |name: &ProfileName| {
        format!(
            "`builtin:flow` asks after text that reads like an instruction, which is looked for in no session under profile \
             `{name}`: add `instructions = \"mark\"` to `[profiles.{name}]`"
        )
    };
    unmarked.map(|(name, _)| sentence(name)).collect()
}
