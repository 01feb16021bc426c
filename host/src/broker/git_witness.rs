//! A git repository as a witness: each checkpoint is a commit on a separate branch.
//!
//! The system's `git` is run without a shell, with an environment that has nothing of the broker's, without the
//! configuration of the user and of the system, and without hooks. Only commands are used that touch no work tree and
//! no index, so that somebody may work in the repository meanwhile.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::ledger::SignedCheckpoint;

/// The branch that gets the commits. Nobody should have it checked out: its files would look deleted there.
pub(super) const BRANCH: &str = "refs/heads/portcullis";

/// The places where systems keep their `git`.
const PROGRAMS: [&str; 4] = ["/usr/bin/git", "/usr/local/bin/git", "/opt/homebrew/bin/git", "/bin/git"];

/// The number of attempts to add a commit while other brokers add theirs.
const ATTEMPTS: usize = 8;

/// The most characters of `git`'s output that are shown.
const MAX_SAID: usize = 300;

/// Settings that override those of the repository: no hook and no other program is run, and no clean-up is begun.
const SETTINGS: [&str; 5] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.logAllRefUpdates=false",
];

/// Adds a checkpoint to a repository: a commit in which the file `CHAIN.checkpoint` is this checkpoint, and the files
/// of other chains are as before. Blocks for as long as `git` does.
///
/// # Errors
/// A text with the output of `git`.
pub(super) fn add(repository: &Path, checkpoint: &SignedCheckpoint) -> Result<(), String> {
    let git = Git { repository, program: program()? };
    let blob = git.run(&["hash-object", "-w", "--stdin"], checkpoint.note().as_bytes())?;
    let name = format!("{}.checkpoint", checkpoint.chain());
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let before = git.tip()?;
        let mut tree = match &before {
            Some(before) => git.run(&["ls-tree", "-z", before], b"")?,
            None => String::new(),
        };
        let ending = format!("\t{name}");
        let others = tree.split_terminator('\0').filter(|entry| !entry.ends_with(&ending));
        tree = others.map(|entry| format!("{entry}\0")).collect();
        tree.push_str(&format!("100644 blob {blob}{ending}\0"));
        let tree = git.run(&["mktree", "-z"], tree.as_bytes())?;
        let message = format!("{} records of chain {}\n", checkpoint.size(), checkpoint.chain());
        let parent = before.iter().flat_map(|before| ["-p", before.as_str()]);
        let arguments: Vec<&str> = ["commit-tree", tree.as_str()].into_iter().chain(parent).collect();
        let commit = git.run(&arguments, message.as_bytes())?;
        // An empty old value means that the branch must not exist yet.
        match git.run(&["update-ref", BRANCH, &commit, before.as_deref().unwrap_or_default()], b"") {
            Ok(_) => return Ok(()),
            // Another broker was faster.
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A repository, and the program that changes it.
struct Git<'a> {
    repository: &'a Path,
    program: PathBuf,
}

impl Git<'_> {
    /// Returns the last commit of the branch, if there is one.
    fn tip(&self) -> Result<Option<String>, String> {
        let found = self.run(&["for-each-ref", "--format=%(objectname)", BRANCH], b"")?;
        Ok((!found.is_empty()).then_some(found))
    }

    /// Runs a command and returns what it prints, without the last line feed.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Result<String, String> {
        let output = self.output(arguments, input).map_err(|error| format!("{}: {error}", self.program.display()))?;
        if !output.status.success() {
            let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(MAX_SAID).collect();
            let command = arguments.first().copied().unwrap_or_default();
            return Err(format!("`git {command}` ended with {}: {said}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "no source: the system's git, which the operator named by naming a repository, with an environment of its own"
    )]
    fn output(&self, arguments: &[&str], input: &[u8]) -> std::io::Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(self.repository);
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let identity = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "portcullis"));
        let address = ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "portcullis@localhost"));
        let closed = [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            // An object that a partial clone lacks is not fetched, with the programs that the repository names for it.
            ("GIT_NO_LAZY_FETCH", "1"),
            ("LC_ALL", "C"),
        ];
        command.env_clear().envs(identity).envs(address).envs(closed).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // The commands that are used here read all of their input before they print anything.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input));
        let output = child.wait_with_output()?;
        // One that fails may not read it, and then says why.
        if output.status.success() { written.map(|()| output) } else { Ok(output) }
    }
}

fn program() -> Result<PathBuf, String> {
    let found = PROGRAMS.iter().map(PathBuf::from).find(|program| program.exists());
    found.ok_or_else(|| format!("there is no git at {}: install it, or name another witness", PROGRAMS.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn neither_hooks_nor_settings_of_a_repository_run_a_program() {
        let Ok(program) = program() else {
            println!("there is no git, so this proves nothing");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new(&program).args(["init", "--quiet"]).arg(dir.path()).status().unwrap();
        assert!(made.success());
        let (trap, sprung) = (dir.path().join("trap"), dir.path().join("sprung"));
        std::fs::write(&trap, format!("#!/bin/sh\necho sprung >> {}\n", sprung.display())).unwrap();
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o700)).unwrap();
        for hook in ["reference-transaction", "post-commit", "pre-commit", "pre-auto-gc", "post-index-change"] {
            std::fs::copy(&trap, dir.path().join(".git/hooks").join(hook)).unwrap();
        }
        let trap = trap.display();
        let settings = format!(
            "[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n\teditor = {trap}\n\tsshCommand = {trap}\n[gpg]\n\tprogram = {trap}\n\
             [commit]\n\tgpgSign = true\n[gc]\n\tauto = 1\n"
        );
        let config = dir.path().join(".git/config");
        let before = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, before + &settings).unwrap();
        let git = Git { repository: dir.path(), program };
        // The same trap springs where it is not disarmed, so that this test sees one.
        let blob = git.run(&["hash-object", "-w", "--stdin"], b"note").unwrap();
        let mut armed = Command::new(&git.program);
        let armed = armed.arg("-C").arg(dir.path()).args(["update-ref", "refs/portcullis/armed", &blob]).status();
        assert!(armed.unwrap().success() && sprung.exists());
        std::fs::remove_file(&sprung).unwrap();
        let tree = git.run(&["mktree"], format!("100644 blob {blob}\tx\n").as_bytes()).unwrap();
        let commit = git.run(&["commit-tree", &tree], b"message").unwrap();
        git.run(&["update-ref", BRANCH, &commit, ""], b"").unwrap();
        assert_eq!(git.tip().unwrap(), Some(commit.clone()));
        assert!(git.run(&["update-ref", BRANCH, &commit, ""], b"").unwrap_err().contains("update-ref"), "it is there");
        assert!(!sprung.exists());
    }
}
