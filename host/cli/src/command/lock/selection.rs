//! The definitions that `lock accept` accepts: those that were named, or all that need no closer look.

use std::collections::BTreeSet;

use anyhow::bail;
use globset::Glob;
use portcullis::broker::{ComparedDefinition, FlagState};
use portcullis::digest::Digest;
use portcullis::item::ItemKind;

use crate::output::escape_hidden;

/// The definitions that may be accepted.
pub(super) struct Selection<'a> {
    pub(super) definitions: &'a [ComparedDefinition],
    /// The kind of the named items.
    pub(super) kind: ItemKind,
    /// The switch of `portcullis lock accept` that names the data folder, if no configuration does.
    pub(super) switch: &'a str,
}

impl<'a> Selection<'a> {
    fn items(&self) -> impl Iterator<Item = &'a ComparedDefinition> {
        self.definitions.iter().filter(|item| item.kind == self.kind)
    }

    /// Returns the items that are accepted if nobody names any, and the remaining ones.
    pub(super) fn unnamed(&self) -> (Vec<&'a ComparedDefinition>, Vec<&'a ComparedDefinition>) {
        let harmless = |item: &ComparedDefinition| item.kind != ItemKind::Tool || !item.may_do_harm;
        let flagged = |item: &ComparedDefinition| item.flag.is_some_and(|flag| flag != FlagState::Accepted);
        self.items().partition(|item| harmless(item) && !flagged(item))
    }

    pub(super) fn named(&self, names: &[String]) -> anyhow::Result<Vec<&'a ComparedDefinition>> {
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
    fn pinned(&self, source: &str, digest: Digest) -> anyhow::Result<Vec<&'a ComparedDefinition>> {
        let offered: Vec<_> = self.definitions.iter().filter(|item| item.source.as_str() == source).collect();
        if offered.is_empty() {
            bail!("no source is called {source:?}, or it lists nothing");
        }
        let found: Vec<_> = offered.into_iter().filter(|item| item.digest == digest).collect();
        if found.is_empty() {
            bail!(
                "source `{source}` lists no definition with the digest {digest} any more; `portcullis check` or `portcullis lock diff` \
                 shows what it lists now, and `--kind` selects prompts, resources and templates"
            );
        }
        Ok(found)
    }

    /// Returns the items with this name, or that this glob matches. A quarantined item must be named by its digest, so
    /// that only a definition that was read is released.
    fn matching(&self, name: &str) -> anyhow::Result<Vec<&'a ComparedDefinition>> {
        let mut found: Vec<_> = self.items().filter(|item| item.exposed == *name).collect();
        if found.is_empty() {
            let glob = Glob::new(name)?.compile_matcher();
            found = self.items().filter(|item| glob.is_match(&item.exposed)).collect();
        }
        if found.is_empty() {
            let (kind, where_listed) = (self.kind.as_str(), "`portcullis tools` lists the tools");
            bail!("no {kind} is called {name:?} ({where_listed}; `--kind` selects prompts, resources and templates)");
        }
        if let Some(item) = found.iter().find(|item| item.flag == Some(FlagState::Quarantined)) {
            bail!(
                "`{}` is quarantined; read what `portcullis check` or `portcullis lock diff{}` shows of it, and release exactly this \
                 definition with `portcullis lock accept{} {}`",
                escape_hidden(&item.exposed),
                self.switch,
                self.switch,
                item.pin()
            );
        }
        // Servers that were wrapped one by one may have tools of the same name.
        let same: BTreeSet<_> = found.iter().filter(|item| item.exposed == *name).map(|item| item.pin()).collect();
        if !self.switch.is_empty() && same.len() > 1 {
            let pins: Vec<_> = same.into_iter().collect();
            bail!(
                "{} servers have a {} {name:?}: name the one that is meant, {}",
                pins.len(),
                self.kind.as_str(),
                pins.join(" or ")
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
