//! Problems that would appear when the broker serves: `check` reports them before an agent meets them.

mod cedar;
mod flow;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;

use super::{Broker, BuildError, SourceDefinitions};
use crate::call::TrustLevel;
use crate::catalog::{Catalog, ContestedName, FilterError, borrowed_names, is_match};
use crate::config::LiteralVariable;
use crate::context::{FlagState, Profile};
use crate::item::{Item, ItemKind};
use crate::name::{ProfileName, SourceName};
use crate::session::contested_by_broker;
use crate::source::SourceError;

/// The kinds of items that agents see.
const KINDS: [ItemKind; 4] = [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::Template];

/// Something that goes wrong when the broker serves what its sources offer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ServingProblem {
    /// True if the problem prevents something from being served; otherwise it is a probable mistake.
    pub fatal: bool,
    /// The sentence that describes the problem, and the way out.
    pub message: String,
}

/// The definitions of each source, or why there are none.
pub(super) type Discovered = BTreeMap<SourceName, Result<SourceDefinitions, SourceError>>;

impl Broker {
    /// Returns what goes wrong when these definitions are served: names that collide, profiles that see nothing,
    /// patterns and rules that match nothing, variables that are left literal.
    ///
    /// # Errors
    /// [`BuildError`] if the lock file is damaged.
    #[doc(hidden)]
    pub fn problems(&self, found: &Discovered) -> Result<Vec<ServingProblem>, BuildError> {
        let mut problems = Vec::new();
        let warn = |message| ServingProblem { fatal: false, message };
        if !found.is_empty() && found.values().all(Result::is_err) {
            let message = "no source is there, so nothing can be served: see below for the reason of each".to_owned();
            problems.push(ServingProblem { fatal: true, message });
        }
        let context = self.inner.context();
        for (name, profile) in &context.profiles {
            problems.extend(self.collisions(name, profile, found));
            problems.extend(self.sees_nothing(name, profile, found)?.map(warn));
            let admitted: Vec<_> = context.admitted(name).map(|(upstream, _)| upstream.config.name.clone()).collect();
            let offered = admitted.iter().map(|source| complete(found.get(source)?)).collect::<Option<Vec<_>>>();
            // A missing source may offer the items that a pattern is meant for.
            let Some(offered) = offered.filter(|offered| !offered.is_empty()) else { continue };
            let items: Vec<&Item> = offered.into_iter().flat_map(shown_items).collect();
            let lists =
                [("allow", profile.config.allow.as_deref().unwrap_or_default()), ("deny", &profile.config.deny)];
            for (key, pattern) in unmatched(&lists, &items, |item| vec![&item.exposed])? {
                problems.push(warn(format!(
                    "profile `{name}`: `{key}` has {pattern:?}, which matches nothing that its sources offer; \
                     it is matched with names as `portcullis tools` shows them"
                )));
            }
        }
        let offered = context.upstreams.keys().map(|source| complete(found.get(source)?)).collect::<Option<Vec<_>>>();
        if let Some(offered) = offered {
            let items: Vec<&Item> = offered.into_iter().flat_map(shown_items).collect();
            problems.extend(rules::unmatched(&context.config.policies, &items)?.into_iter().map(warn));
            problems.extend(cedar::unknown(&context.config, &items).into_iter().map(warn));
        }
        problems.extend(flow::unknown(&context.config).into_iter().map(warn));
        problems.extend(self.misconfigured_sources());
        for (name, upstream) in &context.upstreams {
            let Some(offered) = found.get(name).and_then(complete) else { continue };
            let items: Vec<&Item> = shown_items(offered).collect();
            let lists =
                [("allow", upstream.config.allow.as_deref().unwrap_or_default()), ("deny", &upstream.config.deny)];
            for (key, pattern) in unmatched(&lists, &items, |item| vec![&item.exposed, &item.name])? {
                problems.push(warn(format!(
                    "source `{name}`: `{key}` has {pattern:?}, which matches nothing that the source offers"
                )));
            }
        }
        Ok(problems)
    }

    /// Returns what is probably a mistake in the tables of sources, whatever they offer: arguments that the program will
    /// not find, and variables that are left literal.
    #[doc(hidden)]
    #[must_use]
    pub fn misconfigured_sources(&self) -> Vec<ServingProblem> {
        let context = self.inner.context();
        let folder = context.config.file.as_deref().and_then(Path::parent);
        let mut messages = Vec::new();
        for (name, upstream) in &context.upstreams {
            if let Some(word) = folder.and_then(|folder| upstream.config.misplaced_argument(folder)) {
                messages.push(format!(
                    "source `{name}`: {word:?} stands beside the configuration, but the program starts in a private home: \
                     add `cwd = \".\"` to the source, or write the absolute path"
                ));
            }
            for LiteralVariable { place, variable } in upstream.config.literal_variables() {
                let variable = variable.map_or_else(|| "a variable".to_owned(), |it| format!("`{it}`"));
                messages.push(format!(
                    "source `{name}`: {place} has {variable}, which is not replaced: write the value, or keep it with \
                     `portcullis secret set NAME` and write `{{ secret = \"NAME\" }}` for a whole value of `env` or `headers`"
                ));
            }
        }
        messages.into_iter().map(|message| ServingProblem { fatal: false, message }).collect()
    }

    /// Returns the names that are left out under a profile because they are contested.
    fn collisions(&self, name: &ProfileName, profile: &Profile, found: &Discovered) -> Vec<ServingProblem> {
        let context = self.inner.context();
        let mut upstreams: Vec<_> = context.admitted(name).map(|(upstream, _)| upstream).collect();
        upstreams
            .sort_by(|a, b| (a.config.offered_as(), a.config.turn()).cmp(&(b.config.offered_as(), b.config.turn())));
        let offered: Vec<_> =
            upstreams.iter().filter_map(|upstream| found.get(&upstream.config.name)?.as_ref().ok()).collect();
        let of_kind = |kind: ItemKind| {
            let lists = offered.iter().map(|offered| offered.of_kind(kind).cloned().collect());
            let (catalog, mut contested) = Catalog::merge(lists);
            contested.extend(contested_by_broker(&profile.config, kind, &catalog));
            contested.extend(borrowed_names(&context.config, kind, &catalog));
            let problem = |it: ContestedName| {
                let message = format!("profile `{name}`: {}; until then it is left out", it.message);
                ServingProblem { fatal: true, message }
            };
            contested.into_iter().map(problem).collect::<Vec<_>>()
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// Returns why a profile sees nothing of what its sources offer, if it does not.
    fn sees_nothing(
        &self,
        name: &ProfileName,
        profile: &Profile,
        found: &Discovered,
    ) -> Result<Option<String>, BuildError> {
        if profile.config.trust == TrustLevel::Sandbox {
            return Ok(Some(format!("profile `{name}` sees nothing because its `trust` is \"sandbox\"")));
        }
        let context = self.inner.context();
        let mut admitted = context.admitted(name).peekable();
        if admitted.peek().is_none() {
            return Ok(Some(format!("profile `{name}` sees nothing because its `sources` name none that is enabled")));
        }
        let mut offers = false;
        for (upstream, filter) in admitted {
            let Some(Ok(offered)) = found.get(&upstream.config.name) else { continue };
            let flagged = self.flagged(&upstream.config.name)?;
            let quarantined = |item: &Item| {
                let mut grave = flagged.iter().filter(|flagged| flagged.state == FlagState::Quarantined);
                grave.any(|flagged| flagged.definition == item.digest)
            };
            let mut items = shown_items(offered).peekable();
            offers |= items.peek().is_some();
            if items.any(|item| filter.admits(item) && !quarantined(item)) {
                return Ok(None);
            }
        }
        // Without an offer there is nothing to hide; the sources themselves report why.
        let low = profile.config.trust == TrustLevel::Low;
        let why = if low { "under `trust = \"low\"` only what `allow` names is shown" } else { "its lists hide all" };
        let why = format!("profile `{name}` sees nothing of what its sources offer: {why}, or it is in quarantine");
        Ok(offers.then_some(why))
    }
}

/// Returns the definitions of a source that has listed all of them.
fn complete(found: &Result<SourceDefinitions, SourceError>) -> Option<&SourceDefinitions> {
    found.as_ref().ok().filter(|offered| offered.list_errors.is_empty())
}

fn shown_items(offered: &SourceDefinitions) -> impl Iterator<Item = &Item> {
    offered.items.iter().map(|item| &**item).filter(|item| KINDS.contains(&item.kind))
}

/// Returns the patterns that match none of the items, each with its list.
fn unmatched<'a>(
    lists: &[(&'static str, &'a [String])],
    items: &[&Item],
    names: impl Fn(&Item) -> Vec<&str>,
) -> Result<Vec<(&'static str, &'a str)>, FilterError> {
    let all: Vec<&str> = items.iter().flat_map(|item| names(item)).collect();
    let mut unmatched = Vec::new();
    for (key, patterns) in lists {
        for pattern in *patterns {
            if pattern != "*" && !is_match(pattern, &all)? {
                unmatched.push((*key, pattern.as_str()));
            }
        }
    }
    Ok(unmatched)
}
