//! `portcullis evaluate FILE.wasm`: the imports, offers and answers of a component are judged.

use std::fs;

use portcullis_test_support::guest;
use serde_json::Value;

use super::{grave, report};
use crate::test_dir::TestDir;

#[test]
fn a_hostile_component_is_found_and_honest_ones_are_not_called_malicious() {
    let dir = TestDir::new("");
    fs::copy(guest("thief"), dir.path("thief.wasm")).unwrap();
    let before = crate::test_dir::files(&dir.path(""));
    let ran = dir.run(&["evaluate", "--json", "--idle", "0", "thief.wasm"]);
    let hostile = report(&ran);
    assert_eq!(ran.code, Some(1), "{hostile:#}");
    let found = grave(&hostile);
    let condition = |rule: &str| {
        let found = found.iter().find(|finding| finding["rule"] == rule);
        found.unwrap_or_else(|| panic!("{rule} is not found: {hostile:#}"))["conditions"].to_string()
    };
    assert!(condition("steering-result").contains("every time"), "{hostile:#}");
    assert!(condition("canary-returned").contains("there was something to find"), "{hostile:#}");
    assert!(condition("steering-definition").contains("there was nothing to find"), "{hostile:#}");
    assert!(condition("changed-definition").contains("there was nothing to find"), "{hostile:#}");
    let about = hostile["about"].to_string();
    assert!(about.contains("wasi:filesystem (") && about.contains("cell = { read"), "{about}");
    assert!(about.contains("portcullis:plugin (caller") && about.contains(r#"grant = [\"caller\"]"#), "{about}");
    assert_eq!(crate::test_dir::files(&dir.path("")), before, "no ledger, no lock");

    for honest in ["builtin:calculator", "builtin:filesystem", "builtin:memory"] {
        let ran = dir.run(&["evaluate", "--json", "--idle", "0", honest]);
        let report = report(&ran);
        assert_eq!(grave(&report), Vec::<&Value>::new(), "{honest}");
        assert_ne!(report["judgement"], "not-judged", "{honest}: {report:#}");
        let not = report["exercised"]["not"].to_string();
        assert!(not.contains("a component is not recorded") && report["cell"].is_null(), "{report:#}");
    }
}

#[test]
fn a_component_that_imports_the_network_runs_without_one_and_its_need_is_said() {
    let dir = TestDir::new("");
    let ran = dir.run(&["evaluate", "--idle", "0", "builtin:fetch"]);
    assert!(ran.out.contains("starts only with `cell = { network = "), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("to the hosts that it is granted"), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("it had no network") && !ran.out.contains("folders"), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("no tool ever answered without an error"), "{}{}", ran.out, ran.err);
    assert_eq!((ran.code, ran.err.as_str()), (Some(2), ""), "what was refused is in the ledger before it is closed");
}

#[test]
fn what_is_no_source_is_not_judged() {
    let dir = TestDir::new("");
    fs::write(dir.path("empty.wasm"), "").unwrap();
    for (component, why) in [
        ("absent.wasm".to_owned(), "absent.wasm"),
        ("empty.wasm".to_owned(), "empty.wasm"),
        ("builtin:rules".to_owned(), "is not a source: it is of the kind `policy`"),
        (guest("trap").display().to_string(), "is not a source"),
    ] {
        let ran = dir.run(&["evaluate", "--idle", "0", &component]);
        assert_eq!(ran.code, Some(2), "{component}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(why) || ran.err.contains(why), "{component}: {}{}", ran.out, ran.err);
    }
}
