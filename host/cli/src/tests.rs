#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use clap::{CommandFactory as _, Parser as _};

use crate::cli::Cli;

#[test]
fn the_command_tree_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn usage_errors_are_told_apart_from_failures() {
    for usage in
        [&["portcullis"][..], &["portcullis", "nonsense"], &["portcullis", "secret"], &["portcullis", "secret", "set"]]
    {
        assert_eq!(Cli::try_parse_from(usage).unwrap_err().exit_code(), 2, "{usage:?}");
    }
    assert!(Cli::try_parse_from(["portcullis", "secret", "set", "name", "--config", "x.toml", "--json"]).is_ok());
}

#[test]
fn a_secret_value_is_no_argument() {
    assert!(Cli::try_parse_from(["portcullis", "secret", "set", "name", "value"]).is_err());
}
