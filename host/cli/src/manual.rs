//! The manual pages, made from the help of the commands: one page for the program and one for each command.

use std::io;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Cli;

/// The section of the manual for programs.
const SECTION: &str = "1";

/// A page of the manual.
pub(crate) struct ManualPage {
    /// The command with the words before it, such as `portcullis audit show`.
    pub(crate) command: String,
    /// The name of its file, such as `portcullis-audit-show.1`.
    pub(crate) file: String,
    /// The text, for `man`.
    pub(crate) text: Vec<u8>,
}

/// Returns all pages, those of the commands of a command after its own.
///
/// # Errors
/// None that happens: the pages are written to memory.
pub(crate) fn pages() -> io::Result<Vec<ManualPage>> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add_pages(&program, None, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, above: Option<&str>, pages: &mut Vec<ManualPage>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    pages.push(ManualPage {
        command: command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned(),
        file: format!("{name}.{SECTION}"),
        text: page(command, above)?,
    });
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    commands.into_iter().try_for_each(|below| add_pages(below, Some(&name), pages))
}

fn page(command: &Command, above: Option<&str>) -> io::Result<Vec<u8>> {
    let source = concat!("portcullis ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Portcullis").section(SECTION);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut more = Roff::new();
    if let Some(after) = command.get_after_long_help() {
        add_sections(&after.to_string(), &mut more);
    }
    if let Some(above) = above {
        more.control("SH", ["SEE ALSO"]);
        more.text([roman(format!("{above}({SECTION})"))]);
    }
    more.to_writer(&mut text)?;
    Ok(text)
}

/// Adds the rest of the help after the options: lines below headings such as `Examples:`, which stay as written.
fn add_sections(help: &str, page: &mut Roff) {
    let heading = |line: &str| line.strip_suffix(':').filter(|_| !line.starts_with(' ')).map(str::to_uppercase);
    let mut open = false;
    for line in help.lines() {
        if let Some(heading) = heading(line) {
            if open {
                page.control("fi", []);
            }
            page.control("SH", [heading.as_str()]);
            page.control("nf", []);
            open = true;
        } else {
            page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
    }
    if open {
        page.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;

    /// Returns all commands with the words before them.
    fn commands(command: &Command, found: &mut BTreeSet<String>) {
        found.insert(command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned());
        command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(|below| commands(below, found));
    }

    #[test]
    fn the_manual_has_a_page_for_every_command_and_names_it_in_the_page_above() {
        let mut program = Cli::command().disable_help_subcommand(true);
        program.build();
        let mut all = BTreeSet::new();
        commands(&program, &mut all);
        let pages = pages().unwrap();
        assert_eq!(pages.iter().map(|page| page.command.clone()).collect::<BTreeSet<_>>(), all);
        let text = |command: &str| {
            let page = pages.iter().find(|page| page.command == command).unwrap();
            String::from_utf8(page.text.clone()).unwrap().replace("\\-", "-")
        };
        for command in &all {
            let Some((above, name)) = command.rsplit_once(' ') else { continue };
            assert!(text(above).contains(&format!("{}-{name}(1)", above.replace(' ', "-"))), "{command}");
            assert!(text(command).contains(&format!("{}(1)", above.replace(' ', "-"))), "{command}");
        }
    }

    #[test]
    fn the_manual_has_the_exit_codes_the_variables_and_the_examples() {
        let pages = pages().unwrap();
        let text = |file: &str| {
            let page = pages.iter().find(|page| page.file == file).unwrap();
            String::from_utf8(page.text.clone()).unwrap().replace("\\-", "-")
        };
        let program = text("portcullis.1");
        for wanted in [".SH \"EXIT CODES\"", "\n141  ", ".SH ENVIRONMENT", "\nPORTCULLIS_CONFIG ", "\nNO_COLOR "] {
            assert!(program.contains(wanted), "{wanted} is not in {program}");
        }
        assert!(text("portcullis-audit.1").contains(".SH EXAMPLES\n.nf\nportcullis audit "));
    }
}
