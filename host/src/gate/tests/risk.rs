use super::*;
use crate::call::Risk;
use crate::config::Config;

fn risk(harmless_cell: bool, hints: ToolAnnotations, trusted: bool, acceptance: &Acceptance) -> Risk {
    let text = format!("[sources.s]\ncommand = [\"x\"]\ntrust-annotations = {trusted}\n");
    let config = Config::parse(&text, std::path::Path::new("/portcullis.toml")).unwrap();
    let item = Item { hints, ..Item::clone(&view("{}").call.item) };
    let cell_effects = if harmless_cell { CellEffects::None } else { CellEffects::Possible };
    risk_of(&item, config.sources.values().next().unwrap(), cell_effects, acceptance)
}

#[test]
fn risk_comes_from_the_cell_and_a_hint_alone_never_lowers_it() {
    let (none, unknown) = (ToolAnnotations::default(), Acceptance::Unknown);
    let reads = ToolAnnotations { read_only: Some(true), ..none };
    let destroys = ToolAnnotations { destructive: Some(true), ..none };
    assert_eq!(risk(true, none, false, &unknown), Risk::Harmless, "a source in a harmless cell does no harm");
    assert_eq!(risk(true, destroys, false, &unknown), Risk::Risky, "unless it says so itself");
    assert_eq!(risk(false, none, false, &unknown), Risk::Risky);
    assert_eq!(risk(false, reads, false, &unknown), Risk::Risky, "a hint lowers nothing");
    assert_eq!(risk(false, reads, true, &unknown), Risk::Harmless, "unless a person trusts it");
    assert_eq!(risk(false, none, false, &Acceptance::Accepted), Risk::Harmless);
    assert_eq!(risk(true, none, false, &Acceptance::Changed(Vec::new())), Risk::Risky, "accepted, and changed since");
}
