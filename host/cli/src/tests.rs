#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod book;

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

#[derive(Debug, clap::Parser)]
struct Serve {
    #[command(flatten)]
    args: crate::command::serve::Args,
}

#[derive(Debug, clap::Parser)]
struct Wrap {
    #[command(flatten)]
    args: crate::command::wrap::Args,
}

#[test]
fn everything_after_the_dashes_is_the_wrapped_command() {
    let words = ["wrap", "--read", ".", "--env", "A=b=c", "--approve", "never", "--", "npx", "--read", "x"];
    let args = Wrap::try_parse_from(words).unwrap().args;
    assert_eq!((args.command, args.read), (vec!["npx".into(), "--read".into(), "x".into()], vec![".".to_owned()]));
    assert_eq!(
        (args.env, args.approve),
        (vec![("A".into(), "b=c".into())], Some(crate::command::wrap::ApproveArg::Never))
    );
    assert_eq!((args.names.is_none(), args.write.len(), args.network.len()), (true, 0, 0));
    assert!(Wrap::try_parse_from(["wrap", "npx"]).is_err(), "the dashes tell the options of both apart");
}

#[test]
fn a_broker_serves_one_front() {
    assert!(Serve::try_parse_from(["serve", "--stdio", "--listen", "127.0.0.1:1"]).is_err());
    let args = Serve::try_parse_from(["serve", "--listen", "[::1]:9"]).unwrap().args;
    assert_eq!((args.stdio, args.listen.map(|at| at.port()), args.profile), (false, Some(9), None));
}
