//! Names that could be taken for those of another source. A source whose names are exposed unchanged chooses them, so
//! it could use the prefix of another: rules for `crm__*` would then apply to it.

use std::collections::BTreeSet;

use super::{Catalog, ContestedName, label};
use crate::config::{Config, Naming};
use crate::item::{Item, ItemKind};
use crate::name::{SEPARATOR, SourceName};

/// The scheme of the URIs that the broker makes.
const SCHEME: &str = "portcullis:";

/// Returns the names of a catalog that begin like those of another source or group, or like the broker's own.
pub(crate) fn borrowed_names(config: &Config, kind: ItemKind, catalog: &Catalog) -> Vec<ContestedName> {
    let sources = || config.sources.values();
    let named = sources().map(|source| &source.name).chain(sources().map(|source| source.offered_as()));
    let is_named = matches!(kind, ItemKind::Tool | ItemKind::Prompt);
    let known: BTreeSet<&str> = named.chain(config.disabled.keys()).map(SourceName::as_str).collect();
    let borrowed = |item: &Item| {
        let names = &config.sources.get(&item.source)?.names;
        if !is_named {
            let scheme = item.exposed.get(..SCHEME.len()).filter(|_| *names == Naming::Plain)?;
            return scheme.eq_ignore_ascii_case(SCHEME).then(|| "the broker".to_owned());
        }
        let name = item.exposed.strip_prefix("mcp__").unwrap_or(&item.exposed);
        let first = name.split_once(SEPARATOR).map(|(first, _)| first);
        let is_own = |name: &str| name == item.source.as_str() || name == item.offered_by().as_str();
        if let Some(first) = first.filter(|first| known.contains(first) && !is_own(first)) {
            return Some(format!("source `{first}`"));
        }
        // The prefix that the configuration puts before each name is not the source's choice.
        let own = match names {
            Naming::Plain => String::new(),
            Naming::Source => format!("{}{SEPARATOR}", item.offered_by()),
            Naming::Mcp => format!("mcp{SEPARATOR}{}{SEPARATOR}", item.offered_by()),
            Naming::Prefix(prefix) => prefix.clone(),
        };
        let taken = sources().find(|source| match &source.names {
            Naming::Prefix(prefix) => {
                item.exposed.starts_with(prefix) && !own.starts_with(prefix) && !is_own(source.name.as_str())
            }
            _ => false,
        });
        taken.map(|source| format!("source `{}`", source.name))
    };
    let contested = |item: &Item, owner: String| {
        let message = format!(
            "{} `{}` of source `{}` reads as one of {owner}; give source `{}` another `names` (`\"source\"`, or `{{ prefix = \"…\" }}`)",
            label(item.kind),
            item.exposed,
            item.source,
            item.source,
        );
        ContestedName { exposed: item.exposed.clone(), sources: vec![item.source.clone()], message }
    };
    catalog.items().iter().filter_map(|item| Some(contested(item, borrowed(item)?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_that_chooses_its_names_takes_none_of_another() {
        let component = |names: serde_json::Value| json!({ "component": "builtin:calculator", "names": names });
        let config = Config::builder("/srv")
            .source("web", component(json!("plain")))
            .source("log", component(json!({ "prefix": "l_" })))
            .source("near", component(json!({ "prefix": "crm_" })))
            .source("crm", component(json!("source")))
            .source("mcp", component(json!("source")))
            .build()
            .unwrap();
        let borrowed = |source: &str, kind: ItemKind, exposed: &str| {
            let item = Item::unlisted_tool(&source.parse().unwrap(), exposed, exposed);
            let (catalog, _) = Catalog::merge([vec![Arc::new(Item { kind, ..item })]]);
            borrowed_names(&config, kind, &catalog).pop().map(|it| it.message)
        };
        for (source, kind, exposed) in [
            ("web", ItemKind::Tool, "crm__steal"),
            ("web", ItemKind::Prompt, "mcp__crm__steal"),
            ("web", ItemKind::Resource, "portcullis://crm/file:///doc"),
            ("web", ItemKind::Template, "Portcullis://status"),
            ("near", ItemKind::Tool, "crm__send"),
            ("web", ItemKind::Tool, "l_send"),
            ("mcp", ItemKind::Tool, "mcp__crm__send"),
        ] {
            let message = borrowed(source, kind, exposed);
            assert!(message.as_ref().is_some_and(|message| message.contains(exposed)), "{exposed}: {message:?}");
        }
        for (source, kind, exposed) in [
            ("web", ItemKind::Tool, "web__search"),
            ("web", ItemKind::Tool, "other__search"),
            ("web", ItemKind::Resource, "file:///portcullis://"),
            ("log", ItemKind::Tool, "l_search"),
            ("near", ItemKind::Tool, "crm_send"),
            ("mcp", ItemKind::Tool, "mcp__send"),
            ("crm", ItemKind::Tool, "crm__search"),
            ("crm", ItemKind::Resource, "portcullis://crm/file:///doc"),
        ] {
            assert_eq!(borrowed(source, kind, exposed), None, "{exposed}");
        }
    }
}
