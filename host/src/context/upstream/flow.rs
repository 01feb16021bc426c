//! The labels of a source's results and the effects of its calls, as its cell has them. The source's claims about
//! itself do not count, unless the configuration trusts its hints.

use std::sync::Arc;

use super::Upstream;
use crate::call::Call;
use crate::config::{Endpoint, SourceConfig, looks_secret, secret_arguments};
use crate::flow::{Effect, PRIVATE, UNTRUSTED};
use crate::item::ItemKind;
use crate::provenance::SourceFlow;
use crate::secret::ConfigValue;

const NOTHING: &[Effect] = &[];
const NETWORK: &[Effect] = &[Effect::Network];
const WRITE: &[Effect] = &[Effect::Write];
const ALL: &[Effect] = &Effect::ALL;

/// The labels of a source, with and without an account that a person logged in to.
#[derive(Debug)]
pub(super) struct SourceLabels {
    without_account: Arc<[String]>,
    with_account: Arc<[String]>,
}

impl SourceLabels {
    /// Returns the labels that the configuration states, or else those that follow from its grants.
    pub(super) fn of(config: &SourceConfig) -> Self {
        if let Some(stated) = &config.labels {
            let stated: Arc<[String]> = stated.as_slice().into();
            return Self { without_account: Arc::clone(&stated), with_account: stated };
        }
        let untrusted = reaches_network(config).then(|| UNTRUSTED.to_owned());
        let labels = |private: bool| {
            let private = private.then(|| PRIVATE.to_owned());
            private.into_iter().chain(untrusted.clone()).collect::<Vec<_>>().into()
        };
        Self { without_account: labels(is_granted_private(config)), with_account: labels(true) }
    }
}

impl Upstream {
    /// Returns the labels of the source's results, and the effects that this call can have.
    pub(crate) fn flow(&self, call: &Call) -> SourceFlow {
        SourceFlow { labels: self.labels(), effects: self.effects(call) }
    }

    /// Returns the labels of the messages that the source sends to the agent. Such a message has no effect outside.
    pub(crate) fn flow_to_agent(&self) -> SourceFlow {
        SourceFlow { labels: self.labels(), effects: NOTHING }
    }

    fn labels(&self) -> Arc<[String]> {
        let labels = if self.source.has_account() { &self.labels.with_account } else { &self.labels.without_account };
        Arc::clone(labels)
    }

    /// Returns the effects that this call can have. A person picks a prompt, and an application a resource: these
    /// change nothing, and there is nothing in their names that a model chose. Any further input, such as the arguments
    /// of a prompt or the text to complete, can reach a network.
    fn effects(&self, call: &Call) -> &'static [Effect] {
        let item = &call.item;
        let is_picked = match item.kind {
            ItemKind::Prompt => true,
            ItemKind::Resource | ItemKind::Template => item.is_listed(),
            ItemKind::Tool | ItemKind::Source => false,
        };
        if self.is_harmless() || is_picked && !call.has_arguments() {
            return NOTHING;
        }
        let cell = &self.config.cell;
        let confined = is_in_a_cell(&self.config) && !cell.dangerous_allow_reduced;
        let stores = self.component_cell.as_ref().is_some_and(|cell| cell.has_store);
        let writes = !cell.write.is_empty() || stores;
        let effects = if confined && cell.network.is_empty() && writes { WRITE } else { ALL };
        if is_picked {
            return if effects == WRITE { NOTHING } else { NETWORK };
        }
        let hints = item.hints;
        let reads = self.config.trust_annotations && hints.read_only == Some(true) && hints.destructive != Some(true);
        match (reads, effects) {
            // A tool that does not deny it may reach an open world (2025-11-25, "ToolAnnotations").
            (true, ALL) if hints.open_world != Some(false) => NETWORK,
            (true, _) => NOTHING,
            (false, effects) => effects,
        }
    }
}

/// Reports whether strangers may have written the source's output.
fn reaches_network(config: &SourceConfig) -> bool {
    !is_in_a_cell(config) || !config.cell.network.is_empty()
}

fn is_in_a_cell(config: &SourceConfig) -> bool {
    matches!(config.endpoint, Endpoint::Command { .. } | Endpoint::Component { .. })
}

/// Reports whether the source is granted files, values that are secret, or a capability: a store holds callers' texts,
/// and a caller's name identifies a person.
fn is_granted_private(config: &SourceConfig) -> bool {
    let secret = |(name, value): (&String, &ConfigValue)| match value {
        ConfigValue::Secret(_) => true,
        ConfigValue::Plain(value) => looks_secret(name, value),
    };
    let files = !config.cell.read.is_empty() || !config.cell.write.is_empty();
    files
        || match &config.endpoint {
            Endpoint::Command { argv, env, .. } => env.iter().any(secret) || !secret_arguments(argv).is_empty(),
            Endpoint::Url { headers, .. } => headers.iter().any(secret),
            Endpoint::Component { grant, env, args, .. } => {
                // The component's name stands before its arguments, as a program does.
                let words: Vec<_> = std::iter::once(String::new()).chain(args.iter().cloned()).collect();
                env.iter().any(secret) || !grant.is_empty() || !secret_arguments(&words).is_empty()
            }
            // It may have all that its program has.
            Endpoint::Native { .. } => true,
        }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::catalog::testing::source;
    use crate::config::{Naming, PluginRef};

    #[test]
    fn results_of_a_component_that_is_granted_a_capability_or_a_secret_are_private() {
        let labels = |grant: &[&str], args: &[&str]| {
            let endpoint = Endpoint::Component {
                component: PluginRef::Builtin("memory".into()),
                settings: serde_json::json!({}),
                grant: grant.iter().map(|&word| word.to_owned()).collect(),
                env: BTreeMap::new(),
                args: args.iter().map(|&word| word.to_owned()).collect(),
            };
            let config = SourceConfig { endpoint, ..source("test", Naming::Source) };
            SourceLabels::of(&config).without_account.to_vec()
        };
        assert_eq!(labels(&[], &["--fast"]), [""; 0]);
        for capability in ["key-value", "caller"] {
            assert_eq!(labels(&[capability], &[]), [PRIVATE], "{capability}");
        }
        assert_eq!(labels(&[], &["--token=ghp_0123456789abcdef0123456789abcdef0123"]), [PRIVATE]);
    }
}
