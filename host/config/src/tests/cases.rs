//! Tests with bad configurations as data: `tests/cases/config/NAME/portcullis.toml` and the message it must produce,
//! `error.txt`. A test with the keys of a configuration: `tests/cases/config-keys.txt`. `UPDATE_GOLDEN=1 cargo test -p
//! portcullis` writes the files again; read the difference before committing it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use miette::{GraphicalReportHandler, GraphicalTheme};

use serde_json::Value;

use super::super::{Config, ConfigError, schema};

#[test]
#[expect(clippy::disallowed_methods, reason = "the developer's shell says whether to write the golden files")]
fn every_bad_configuration_gets_its_clear_error() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/config");
    let mut different = Vec::new();
    let mut count = 0;
    for case in cases.read_dir().unwrap() {
        let case = case.unwrap().path();
        let text = std::fs::read_to_string(case.join("portcullis.toml")).unwrap();
        let error = Config::parse(&text, Path::new("portcullis.toml")).expect_err(&case.display().to_string());
        let shown = render(&error);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
        let golden = case.join("error.txt");
        if update {
            std::fs::write(&golden, &shown).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != shown {
            different.push(format!("{}\n{shown}", case.display()));
        }
        count += 1;
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(count >= 25, "only {count} cases were found");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the developer's shell says whether to write the golden file")]
fn a_configuration_has_the_keys_that_users_write_and_no_others() {
    let mut keys = BTreeSet::new();
    collect_keys(&schema(), "", &mut keys);
    let keys = keys.into_iter().fold(String::new(), |text, key| text + &key + "\n");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/config-keys.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &keys).unwrap();
    }
    assert_eq!(keys, std::fs::read_to_string(&golden).unwrap(), "removing a key makes valid files invalid");
}

/// Collects the names of all properties of a schema, each under the name of the type that has it.
fn collect_keys(schema: &Value, of: &str, keys: &mut BTreeSet<String>) {
    let Some(members) = schema.as_object() else { return };
    for (name, value) in members {
        match (name.as_str(), value.as_object()) {
            ("properties", Some(properties)) => {
                for (key, property) in properties {
                    keys.insert(format!("{of}.{key}"));
                    collect_keys(property, &format!("{of}.{key}"), keys);
                }
            }
            ("$defs", Some(types)) => types.iter().for_each(|(name, inner)| collect_keys(inner, name, keys)),
            _ => value.as_array().into_iter().flatten().chain([value]).for_each(|inner| collect_keys(inner, of, keys)),
        }
    }
}

fn render(error: &ConfigError) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    let mut shown = format!("{error}\n\n");
    for problem in error.problems() {
        handler.render_report(&mut shown, problem).unwrap();
        writeln!(shown).unwrap();
    }
    shown
}
