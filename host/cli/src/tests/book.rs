//! The book's page of commands, and the commands and configurations that its pages show.
#![allow(clippy::disallowed_methods, reason = "tests, which read UPDATE_GOLDEN")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use portcullis::config::Config;
use portcullis_test_support::code_blocks;

use crate::cli::Cli;

/// The page that is made from the definition of the commands.
const REFERENCE: &str = "docs/src/reference/commands.md";

const HEAD: &str = "\
# Command reference

This page lists every command with its options, so that you can look up what one does. It is made from the program's own
help (`portcullis help COMMAND` shows the same); a test keeps it so.
";

#[test]
fn the_reference_of_commands_is_made_from_their_help() {
    let mut command = Cli::command();
    command.build();
    let mut page = HEAD.to_owned();
    about(&mut page, &command);
    options(&mut page, command.get_arguments());
    after(&mut page, &command);
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        section(&mut page, "portcullis", &command, inner);
    }
    let path = root().join(REFERENCE);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, page).unwrap();
    } else {
        let update = "run `UPDATE_GOLDEN=1 cargo test --workspace --bins -- reference_of_commands`";
        assert!(fs::read_to_string(path).unwrap() == page, "{REFERENCE} is not what the help says: {update}");
    }
}

/// Writes the section of a command and those of its subcommands. An option that all of these take is written once, at
/// the command that has it.
fn section(page: &mut String, path: &str, parent: &Command, command: &Command) {
    let name = format!("{path} {}", command.get_name());
    let is_inherited = |argument: &Arg| {
        argument.is_global_set() && parent.get_arguments().any(|inherited| inherited.get_id() == argument.get_id())
    };
    let level = name.split(' ').count();
    let _ = write!(page, "\n{} `{name}`\n", "#".repeat(level.min(4)));
    about(page, command);
    let usage = command.clone().render_usage().to_string();
    let _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    options(page, command.get_arguments().filter(|argument| !is_inherited(argument)));
    after(page, command);
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        section(page, &name, command, inner);
    }
}

fn about(page: &mut String, command: &Command) {
    let text = command.get_long_about().or_else(|| command.get_about());
    for paragraph in text.map(ToString::to_string).unwrap_or_default().split("\n\n") {
        let _ = write!(page, "\n{}\n", paragraph.trim());
    }
}

fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let is_shown =
        |argument: &&Arg| !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str());
    let shown = arguments.filter(is_shown);
    for (index, argument) in shown.enumerate() {
        if index == 0 {
            page.push('\n');
        }
        // Without the name of its value this would be only the value's name.
        let mut name = argument.to_string();
        if let (Some(short), Some(_)) = (argument.get_short(), argument.get_long()) {
            name = format!("-{short}, {name}");
        }
        let help =
            argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(page, "- `{name}`: {help}");
        let values = argument.get_possible_values();
        let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !names.is_empty() && argument.get_action().takes_values() {
            let _ = write!(page, " ({})", names.join(", "));
        }
        let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            let _ = write!(page, " [default: `{}`]", defaults.join(" "));
        }
        page.push('\n');
    }
}

/// Writes the part after the options: examples as commands, tables unchanged.
fn after(page: &mut String, command: &Command) {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let mut lines = paragraph.lines();
        let title = lines.next().unwrap_or_default();
        let rest: Vec<_> = lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        let _ = match title {
            "Examples:" => write!(page, "\n```sh\n{}\n```\n", rest.join("\n")),
            _ if title.ends_with(':') => write!(page, "\n{title}\n\n```text\n{}\n```\n", rest.join("\n")),
            _ => write!(page, "\n{paragraph}\n"),
        };
    }
}

#[test]
fn every_command_in_the_book_is_one_that_the_program_understands() {
    let mut found = 0;
    for block in code_blocks().iter().filter(|block| block.is("sh")) {
        for words in commands(&block.text) {
            found += 1;
            match Cli::try_parse_from(&words) {
                Ok(_) => {}
                // `portcullis help` and `--version` are answered by the parser.
                Err(error) if error.exit_code() == 0 => {}
                // `--env NAME` takes the value from the environment of the reader.
                Err(error) if error.to_string().contains("is not set here") => {}
                Err(error) => panic!("{}: `{}`: {error}", block.place(), words.join(" ")),
            }
        }
    }
    assert!(found > 100, "only {found} commands are found: does the test still see them?");
}

#[test]
fn the_units_of_the_book_are_ones_that_systemd_understands() {
    let page = fs::read_to_string(root().join("docs/src/service.md")).unwrap();
    let units: Vec<&str> = page.split("```").filter(|block| block.contains("\n[Service]\n")).collect();
    assert_eq!(units.len(), 2, "of the machine, and of a user");
    let folder = tempfile::tempdir().unwrap();
    for (unit, scope) in units.into_iter().zip(["--system", "--user"]) {
        // The program need not be installed where the page puts it, nor need the user exist.
        let own = |line: &&str| !line.starts_with("ExecStart=") && !line.starts_with("User=") && *line != "text";
        let lines: Vec<&str> = unit.lines().filter(own).collect();
        let text = lines.join("\n").replace("[Service]\n", "[Service]\nExecStart=/bin/true\n");
        let file = folder.path().join("portcullis.service");
        fs::write(&file, text).unwrap();
        let mut verify = std::process::Command::new("systemd-analyze");
        // Where there is no systemd, nobody follows the page.
        let Ok(ran) = verify.args([scope, "verify"]).arg(&file).env("XDG_RUNTIME_DIR", folder.path()).output() else {
            return;
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        let about: Vec<&str> = said.lines().filter(|line| line.contains("portcullis.service")).collect();
        assert_eq!(about, Vec::<&str>::new(), "{scope}");
    }
}

#[test]
fn the_folders_of_a_recipe_in_the_readme_are_made_before_it_is_checked() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let recipe = readme.split("\n## ").find(|section| section.starts_with("Recipe 2")).unwrap();
    let folders: BTreeSet<&str> = recipe.split(['"', ' ']).filter_map(|word| word.strip_prefix("./")).collect();
    let (before, _) = recipe.split_once("portcullis check").unwrap();
    assert!(!folders.is_empty());
    for folder in folders {
        assert!(before.contains(&format!("\nmkdir {folder} ")), "{folder} is not there for who types the recipe");
    }
}

#[test]
fn every_configuration_in_the_book_is_valid() {
    let mut found = 0;
    for block in code_blocks().iter().filter(|block| block.is("toml") && !block.is("fragment")) {
        found += 1;
        // Paths need not exist to be valid, so any folder serves.
        if let Err(error) = Config::parse(&block.text, Path::new("/home/me/portcullis.toml")) {
            let said: Vec<_> = error.problems().iter().map(ToString::to_string).collect();
            panic!("{}: {}", block.place(), said.join("; "));
        }
    }
    assert!(found > 10, "only {found} configurations are found: does the test still see them?");
}

#[test]
fn every_fragment_of_a_configuration_in_the_book_is_toml() {
    for block in code_blocks().iter().filter(|block| block.is("toml")) {
        if let Err(error) = block.text.parse::<toml_edit::DocumentMut>() {
            panic!("{}: {error}", block.place());
        }
    }
}

/// Returns the commands of a shell block that run this program, each as its words.
fn commands(text: &str) -> Vec<Vec<String>> {
    /// The words that end a command, if they are separate words.
    const ENDS: [&str; 8] = ["|", "&&", "||", "&", ";", ">", ">>", "<"];
    let joined = text.replace("\\\n", " ");
    let lines: Vec<_> = joined.lines().map(words).collect();
    let commands = lines.iter().flat_map(|words| words.split(|word| ENDS.contains(&word.as_str())));
    commands.filter(|words| words.first().is_some_and(|word| word == "portcullis")).map(<[_]>::to_vec).collect()
}

/// Splits a line as a shell does, as far as the book goes: words in quotes, and comments.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c.is_whitespace() => words.extend(word.take()),
            None if c == '#' && word.is_none() => break,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quotation is not closed: {line}");
    words.extend(word);
    words
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap()
}

#[test]
fn the_commands_of_a_block_are_found() {
    let text = "portcullis tools --json | portcullis scan -   # a note\n./x && portcullis call a__b \\\n  '{\"a\": 1}' > out\nls\n";
    let expected = [
        &["portcullis", "tools", "--json"][..],
        &["portcullis", "scan", "-"],
        &["portcullis", "call", "a__b", "{\"a\": 1}"],
    ];
    assert_eq!(commands(text), expected);
}
