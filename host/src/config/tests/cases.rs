//! Bad configurations as data: `tests/cases/config/NAME/portcullis.toml` and the message it must give, `error.txt`.
//! `UPDATE_GOLDEN=1 cargo test -p portcullis` writes the messages anew; read the difference before committing it.

use std::fmt::Write as _;
use std::path::Path;

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::super::{Config, ConfigError};

#[test]
#[expect(clippy::disallowed_methods, reason = "whether to write the golden files is asked of the developer's shell")]
fn every_bad_configuration_gets_its_clear_error() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/config");
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

fn render(error: &ConfigError) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    let mut shown = format!("{error}\n\n");
    for problem in error.problems() {
        handler.render_report(&mut shown, problem).unwrap();
        writeln!(shown).unwrap();
    }
    shown
}
