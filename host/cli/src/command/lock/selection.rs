//! The definitions that `lock accept` accepts: those that were named, or all that need no closer look.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use globset::Glob;
use portcullis::broker::{FlagState, FlaggedDefinition};
use portcullis::digest::Digest;
use portcullis::item::{Item, ItemKind};

use super::Discovered;
use crate::output::escape_hidden;
/// The definitions that may be accepted, and what was found in them.
pub(super) struct Selection<'a> {
    pub(super) discovered: &'a Discovered,
    pub(super) flagged: &'a [FlaggedDefinition],
    /// The kind of the items that names stand for.
    pub(super) kind: ItemKind,
}

impl Selection<'_> {
    fn items(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.discovered.values().flat_map(|offered| offered.of_kind(self.kind))
    }

    fn flag(&self, item: &Item) -> Option<&FlaggedDefinition> {
        let is_it = |flagged: &&FlaggedDefinition| {
            flagged.source == item.source && flagged.kind == item.kind && flagged.definition == item.digest
        };
        self.flagged.iter().filter(|flagged| flagged.state != FlagState::Accepted).find(is_it)
    }

    /// Returns what is accepted if nobody names anything, and what is left then.
    pub(super) fn unnamed(&self) -> (Vec<Arc<Item>>, Vec<Arc<Item>>) {
        let harmless = |item: &Item| item.kind != ItemKind::Tool || !item.hints.may_do_harm();
        self.items().cloned().partition(|item| harmless(item) && self.flag(item).is_none())
    }

    pub(super) fn named(&self, names: &[String]) -> anyhow::Result<Vec<Arc<Item>>> {
        let mut chosen = Vec::new();
        for name in names {
            let found = match source_and_digest(name) {
                Some((source, digest)) => self.pinned(source, digest)?,
                None => self.matching(name)?,
            };
            chosen.extend(found);
        }
        Ok(chosen)
    }

    /// Returns the definition of a source with this digest, of any kind.
    fn pinned(&self, source: &str, digest: Digest) -> anyhow::Result<Vec<Arc<Item>>> {
        let offered = self.discovered.get(source).with_context(|| format!("no source is called {source:?}"))?;
        let found: Vec<_> = offered.items.iter().filter(|item| item.digest == digest).cloned().collect();
        if found.is_empty() {
            let why = "`portcullis check` shows what it lists now";
            let errors = offered.list_errors.iter().map(|(kind, error)| format!("; its {}s: {error}", kind.as_str()));
            let errors: String = errors.collect();
            bail!("source `{source}` lists no definition with the digest {digest} any more; {why}{errors}");
        }
        Ok(found)
    }

    /// Returns the items with this name, or that this glob matches. What is quarantined must be named by its digest, so
    /// that nothing is released but what was read.
    fn matching(&self, name: &str) -> anyhow::Result<Vec<Arc<Item>>> {
        let mut found: Vec<_> = self.items().filter(|item| *item.exposed == *name).cloned().collect();
        if found.is_empty() {
            let glob = Glob::new(name)?.compile_matcher();
            found = self.items().filter(|item| glob.is_match(&*item.exposed)).cloned().collect();
        }
        if found.is_empty() {
            let (kind, where_listed) = (self.kind.as_str(), "`portcullis tools` lists the tools");
            bail!("no {kind} is called {name:?} ({where_listed}; `--kind` selects prompts, resources and templates)");
        }
        let quarantined = |item: &Arc<Item>| Some(self.flag(item)?).filter(|it| it.state == FlagState::Quarantined);
        if let Some(flagged) = found.iter().find_map(quarantined) {
            bail!(
                "`{}` is quarantined; read what `portcullis check` shows of it, and release exactly this definition with \
                 `portcullis lock accept {}`",
                escape_hidden(&flagged.name),
                flagged.pin
            );
        }
        Ok(found)
    }
}

/// Returns the source and the digest of a name such as `files@sha256:…`.
fn source_and_digest(name: &str) -> Option<(&str, Digest)> {
    let (source, digest) = name.rsplit_once('@')?;
    Some((source, digest.parse().ok()?))
}
