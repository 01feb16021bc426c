#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use super::*;

fn attempt(action: AttemptAction, subject: AttemptSubject, availability: AttemptAvailability) -> RecordedAttempt {
    RecordedAttempt { action, subject, availability, count: 1, after: Duration::ZERO, program: "node".to_owned() }
}

fn hidden(action: AttemptAction, path: &Path) -> RecordedAttempt {
    attempt(action, AttemptSubject::Path(path.to_owned()), AttemptAvailability::Hidden)
}

fn refused(host: &str, port: Option<u16>) -> RecordedAttempt {
    attempt(AttemptAction::Connect, AttemptSubject::Host(host.to_owned(), port), AttemptAvailability::Denied)
}

fn values(lines: &[CellLine]) -> Vec<(&str, String)> {
    lines.iter().map(|line| (line.key.as_str(), line.value.clone())).collect()
}

/// Returns a home outside `/tmp`, which every cell replaces with its own.
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

#[test]
fn what_a_person_named_is_granted_as_a_whole() {
    let home = home();
    let docs = home.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    let facts = SourceFacts { named: vec![docs.clone()], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let attempts = [hidden(AttemptAction::Look, &docs), hidden(AttemptAction::Read, &docs.join("a/b.md"))];
    let proposal = Proposal::of(&attempts, &facts);
    assert_eq!(values(&proposal.lines), [("read", docs.display().to_string())]);
    assert!(proposal.lines.first().unwrap().evidence.first().unwrap().contains("which exists outside"));
    let attempts = [hidden(AttemptAction::Look, &docs), hidden(AttemptAction::Write, &docs.join("new.md"))];
    let proposal = Proposal::of(&attempts, &facts);
    assert_eq!(values(&proposal.lines), [("write", docs.display().to_string())], "and no `read` within it");
}

#[test]
fn a_file_that_is_replaced_or_removed_needs_its_folder() {
    let home = home();
    let folder = home.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("notes.json");
    std::fs::write(&file, "").unwrap();
    let facts = SourceFacts { named: vec![file.clone()], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let on = |action, availability| attempt(action, AttemptSubject::Path(file.clone()), availability);
    let written = Proposal::of(&[on(AttemptAction::Write, AttemptAvailability::ReadOnly)], &facts);
    assert_eq!(
        values(&written.lines),
        [("write", file.display().to_string())],
        "what is written in place is not widened"
    );
    for availability in [AttemptAvailability::Hidden, AttemptAvailability::ReadOnly, AttemptAvailability::Alone] {
        let attempts = [on(AttemptAction::Read, AttemptAvailability::Hidden), on(AttemptAction::Replace, availability)];
        let proposal = Proposal::of(&attempts, &facts);
        assert_eq!(values(&proposal.lines), [("write", folder.display().to_string())], "{proposal:?}");
        assert!(proposal.lines.first().unwrap().remark.unwrap().contains("replaces"), "{proposal:?}");
    }
    // The folder that the command names contains the replaced file, so nothing wider is needed.
    let facts = SourceFacts { named: vec![folder.clone()], ..facts };
    let proposal = Proposal::of(&[on(AttemptAction::Replace, AttemptAvailability::ReadOnly)], &facts);
    assert_eq!(values(&proposal.lines), [("write", folder.display().to_string())]);
    // A whole home is too much for one file in it.
    let file = home.path().join("notes.json");
    std::fs::write(&file, "").unwrap();
    let facts = SourceFacts { named: vec![file.clone()], ..facts };
    let moved = attempt(AttemptAction::Replace, AttemptSubject::Path(file), AttemptAvailability::Alone);
    let proposal = Proposal::of(&[moved], &facts);
    assert!(proposal.is_empty() && proposal.withheld.len() == 1, "{proposal:?}");
}

#[test]
fn a_named_file_that_does_not_exist_opens_its_folder_only_with_a_person() {
    let home = home();
    let home = home.path().canonicalize().unwrap();
    let project = home.join("project");
    let hooks = project.join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    let notes = project.join("notes.json");
    let mut facts = SourceFacts { home: Some(home), ..SourceFacts::default() };
    facts.name(&notes);
    assert_eq!((facts.named.as_slice(), facts.missing.as_slice()), (&[][..], std::slice::from_ref(&notes)));
    let folder = [("write", project.display().to_string())];
    let proposal = Proposal::of(&[hidden(AttemptAction::Write, &notes)], &facts);
    assert_eq!(values(&proposal.lines), folder, "a person can agree to it");

    let attempts = [hidden(AttemptAction::Write, &hooks.join("pre-commit"))];
    let elsewhere = Proposal::of(&attempts, &facts);
    assert!(elsewhere.lines.iter().all(|line| line.value != project.display().to_string()), "{elsewhere:?}");

    for attempts in [vec![hidden(AttemptAction::Write, &notes)], attempts.to_vec()] {
        let mut proposal = Proposal::of(&attempts, &facts);
        proposal.withhold_unnamed(&facts);
        assert!(proposal.lines.is_empty(), "{proposal:?}");
        assert!(!proposal.withheld.is_empty());
    }
    let mut proposal = proposal;
    proposal.withhold_unnamed(&facts);
    assert_eq!(values(&proposal.withheld), folder);
    let remark = proposal.withheld.first().unwrap().remark.unwrap();
    assert!(remark.contains("does not exist") && remark.contains("make the file first"), "{remark}");
    // A whole home is never proposed for one file.
    let in_home = project.parent().unwrap().join("new.json");
    facts.name(&in_home);
    let proposal = Proposal::of(&[hidden(AttemptAction::Write, &in_home)], &facts);
    assert!(proposal.is_empty() && proposal.withheld.len() == 1, "{proposal:?}");
    // Once it exists, the file alone is granted.
    std::fs::write(&notes, "").unwrap();
    let mut facts = SourceFacts { named: Vec::new(), missing: Vec::new(), ..facts };
    facts.name(&notes);
    let mut proposal = Proposal::of(&[hidden(AttemptAction::Write, &notes)], &facts);
    proposal.withhold_unnamed(&facts);
    assert_eq!(values(&proposal.lines), [("write", notes.display().to_string())]);
}

#[test]
fn many_files_of_a_folder_are_the_folder_and_few_are_themselves() {
    let home = home();
    let folder = home.path().join("models/small");
    std::fs::create_dir_all(&folder).unwrap();
    let files: Vec<PathBuf> = (0..3).map(|n| folder.join(format!("{n}.bin"))).collect();
    files.iter().for_each(|file| std::fs::write(file, "").unwrap());
    let facts = SourceFacts { home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let reads: Vec<RecordedAttempt> = files.iter().map(|file| hidden(AttemptAction::Read, file)).collect();
    assert_eq!(values(&Proposal::of(&reads, &facts).lines), [("read", folder.display().to_string())]);
    let two = Proposal::of(reads.get(..2).unwrap(), &facts);
    assert_eq!(two.lines.len(), 2, "{two:?}");
}

#[test]
fn what_every_program_looks_for_is_left_out() {
    let home = home();
    let program = home.path().join("server/index.js");
    let marker = home.path().join("package.json");
    std::fs::write(&marker, "{}").unwrap();
    let facts = SourceFacts { inside: vec![program], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let attempts = [
        hidden(AttemptAction::Look, home.path()),
        hidden(AttemptAction::Read, &marker),
        hidden(AttemptAction::Read, Path::new("/etc/gai.conf")),
        hidden(AttemptAction::Read, Path::new("/proc/meminfo")),
        attempt(AttemptAction::Read, AttemptSubject::Path("/nowhere/at/all".into()), AttemptAvailability::Absent),
        attempt(AttemptAction::Write, AttemptSubject::Path("/tmp/x".into()), AttemptAvailability::Granted),
    ];
    assert_eq!(Proposal::of(&attempts, &facts), Proposal::default());
}

#[test]
fn a_refused_write_to_the_own_folder_of_a_server_is_said_wherever_that_is() {
    // A folder in `/tmp`, where otherwise nothing is proposed.
    let own = tempfile::tempdir().unwrap();
    let own = own.path().canonicalize().unwrap();
    let facts = SourceFacts { inside: vec![own.clone()], ..SourceFacts::default() };
    let wrote =
        |path: PathBuf| attempt(AttemptAction::Write, AttemptSubject::Path(path), AttemptAvailability::ReadOnly);
    let elsewhere = wrote("/tmp/elsewhere".into());
    let attempts: Vec<_> = ["a.1.tmp", "a.2.tmp", "__pycache__"].map(|name| wrote(own.join(name))).into();
    let proposal = Proposal::of(&[attempts, vec![elsewhere]].concat(), &facts);
    assert!(proposal.is_empty(), "{proposal:?}");
    assert_eq!(values(&proposal.withheld), [("write", own.display().to_string())], "one line for all its files");
    let line = proposal.withheld.first().unwrap();
    assert!(line.remark.unwrap().contains("own folder"), "{proposal:?}");
    assert_eq!(line.evidence, [format!("node wrote 2 temporary files in {}", own.display())]);
}

#[test]
fn temporary_files_of_one_folder_are_one_line() {
    let home = home();
    // As for a package that a broker has installed, which lies among its own files.
    let own = home.path().canonicalize().unwrap().join(".portcullis/packages/dist");
    std::fs::create_dir_all(&own).unwrap();
    let wrote =
        |name: &str| attempt(AttemptAction::Write, AttemptSubject::Path(own.join(name)), AttemptAvailability::ReadOnly);
    let attempts: Vec<_> = (0..5).map(|n| wrote(&format!("memory.json.{n}c07bed10bb8.tmp"))).collect();
    for inside in [Vec::new(), vec![own.clone()]] {
        let facts = SourceFacts { inside, home: Some(home.path().to_owned()), ..SourceFacts::default() };
        let proposal = Proposal::of(&attempts, &facts);
        assert_eq!(values(&proposal.withheld), [("write", own.display().to_string())]);
        let evidence = &proposal.withheld.first().unwrap().evidence;
        assert!(
            matches!(&evidence[..], [text] if text.starts_with("node wrote 5 temporary files in ")),
            "{evidence:?}"
        );
    }
}

#[test]
fn credentials_and_whole_homes_are_named_and_not_proposed() {
    let home = home();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/id_rsa"), "key").unwrap();
    let facts = SourceFacts { home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let attempts = [
        hidden(AttemptAction::Read, &home.path().join(".ssh/id_rsa")),
        hidden(AttemptAction::Write, &home.path().join("new-file")),
    ];
    let proposal = Proposal::of(&attempts, &facts);
    assert!(proposal.is_empty(), "{proposal:?}");
    let reasons: Vec<_> = proposal.withheld.iter().filter_map(|line| line.remark).collect();
    assert!(reasons.iter().any(|why| why.contains("credentials")) && reasons.iter().any(|why| why.contains("more")));
}

#[test]
fn a_host_is_proposed_with_its_port_and_a_guess_is_called_one() {
    let attempts =
        [refused("API.Example.com", None), refused("db.example.com", Some(5432)), refused("_bad name", None)];
    let mut proposal = Proposal::of(&attempts, &SourceFacts::default());
    assert_eq!(values(&proposal.lines), [("network", "db.example.com:5432".to_owned())], "no port that was not tried");
    assert_eq!(values(&proposal.looked_up), [("network", "api.example.com:PORT".to_owned())]);
    assert!(proposal.looked_up.first().unwrap().remark.unwrap().contains("no connection was tried"), "{proposal:?}");
    proposal.guess_ports();
    proposal.lines.sort_by(|a, b| a.value.cmp(&b.value));
    let expected = [("network", "api.example.com:443".to_owned()), ("network", "db.example.com:5432".to_owned())];
    assert_eq!(values(&proposal.lines), expected);
    assert!(proposal.lines.first().unwrap().remark.is_some() && proposal.lines.last().unwrap().remark.is_none());
    let made_up = Proposal::of(&[refused("example.com", None)], &SourceFacts::default());
    assert!(made_up.is_empty() && made_up.withheld.len() == 1, "{made_up:?}");
    let address = attempt(
        AttemptAction::Connect,
        AttemptSubject::Address("203.0.113.7:443".parse().unwrap()),
        AttemptAvailability::Denied,
    );
    assert_eq!(
        values(&Proposal::of(&[address], &SourceFacts::default()).lines),
        [("network", "203.0.113.7:443".to_owned())]
    );
}

#[test]
fn the_brokers_own_files_are_withheld() {
    let home = home();
    let folder = home.path().join("project");
    std::fs::create_dir(&folder).unwrap();
    let facts = SourceFacts { named: vec![folder.clone()], ..SourceFacts::default() };
    let mut proposal = Proposal::of(&[hidden(AttemptAction::Read, &folder)], &facts);
    proposal.withhold(&[folder.join(".portcullis")]);
    assert!(proposal.is_empty() && proposal.withheld.len() == 1, "{proposal:?}");
}

#[test]
fn what_only_a_person_can_agree_to_is_withheld_where_nobody_is_asked() {
    let home = home();
    let (letters, docs) = (home.path().join("letters"), home.path().join("docs"));
    [&letters, &docs].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let facts = SourceFacts { named: vec![docs.clone()], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let attempts =
        [hidden(AttemptAction::Read, &letters), hidden(AttemptAction::Read, &docs), refused("api.test", None)];
    let mut proposal = Proposal::of(&attempts, &facts);
    proposal.guess_ports();
    assert_eq!(proposal.lines.len(), 3, "{proposal:?}");
    proposal.withhold_unnamed(&facts);
    let kept = [("read", docs.display().to_string()), ("network", "api.test:443".to_owned())];
    assert_eq!(values(&proposal.lines), kept, "{proposal:?}");
}

#[test]
fn a_link_to_credentials_is_known_by_where_it_leads() {
    let home = home();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/config"), "").unwrap();
    std::os::unix::fs::symlink(home.path().join(".ssh"), home.path().join("innocent")).unwrap();
    let facts = SourceFacts { home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let proposal = Proposal::of(&[hidden(AttemptAction::Read, &home.path().join("innocent/config"))], &facts);
    assert!(proposal.is_empty() && proposal.withheld.len() == 1, "{proposal:?}");
}

#[test]
fn three_files_of_a_folder_with_credentials_do_not_open_the_folder() {
    let home = home();
    let folder = home.path().join(".cargo");
    std::fs::create_dir(&folder).unwrap();
    let files: Vec<PathBuf> = ["config.toml", "env", "registry"].iter().map(|name| folder.join(name)).collect();
    files.iter().for_each(|file| std::fs::write(file, "").unwrap());
    let facts = SourceFacts { home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let attempts: Vec<_> = files.iter().map(|file| hidden(AttemptAction::Read, file)).collect();
    let proposal = Proposal::of(&attempts, &facts);
    assert!(proposal.lines.iter().all(|line| Path::new(&line.value) != folder), "{:?}", proposal.lines);
    assert_eq!(proposal.lines.len(), 3);
}

#[test]
fn a_proposed_folder_that_holds_a_key_says_so() {
    let home = home();
    let project = home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join(".env"), "").unwrap();
    let facts =
        SourceFacts { named: vec![project.clone()], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let proposal = Proposal::of(&[hidden(AttemptAction::Read, &project.join("main.rs"))], &facts);
    assert!(proposal.lines.first().unwrap().remark.unwrap().contains("keys or passwords"), "{proposal:?}");
}

#[test]
fn a_source_that_searches_gets_no_endless_proposal() {
    let attempts: Vec<_> = (0..1000).map(|n| refused(&format!("h{n}.example.test"), Some(443))).collect();
    let proposal = Proposal::of(&attempts, &SourceFacts::default());
    assert_eq!((proposal.lines.len(), proposal.withheld.len()), (MAX_LINES, MAX_WITHHELD));
    let attempts: Vec<_> = (0..1000).map(|n| refused(&format!("h{n}.example.test"), None)).collect();
    let mut proposal = Proposal::of(&attempts, &SourceFacts::default());
    assert_eq!((proposal.lines.len(), proposal.looked_up.len()), (0, MAX_WITHHELD));
    proposal.guess_ports();
    assert!(proposal.lines.len() <= MAX_LINES && proposal.looked_up.is_empty());
}

#[test]
fn the_evidence_of_a_line_is_short_however_long_the_path_is() {
    let path = PathBuf::from(format!("/{}", "é/".repeat(2048)));
    let long = RecordedAttempt { program: "p".repeat(4096), ..hidden(AttemptAction::Write, &path) };
    let text = said(&long);
    assert!(text.chars().count() <= 200 && text.ends_with("…, which exists outside"), "{text}");
    let short = said(&hidden(AttemptAction::Read, Path::new("/a")));
    assert_eq!(short, "node read /a, which exists outside");
}

#[test]
fn what_is_read_within_a_folder_to_be_written_is_no_line_of_its_own() {
    let home = home();
    let (docs, other) = (home.path().join("docs"), home.path().join("docs2"));
    [&docs, &other].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let facts = SourceFacts { home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let file = docs.join("a.md");
    std::fs::write(&file, "").unwrap();
    let attempts = [
        hidden(AttemptAction::Read, &file),
        hidden(AttemptAction::Read, &other),
        hidden(AttemptAction::Write, &docs.join("new.md")),
    ];
    let expected = [("read", other.display().to_string()), ("write", docs.display().to_string())];
    assert_eq!(values(&Proposal::of(&attempts, &facts).lines), expected);
}

#[test]
fn compiled_modules_beside_a_python_program_are_no_need() {
    let home = home();
    let program = home.path().join("venv");
    std::fs::create_dir(&program).unwrap();
    let attempts = [attempt(
        AttemptAction::Write,
        AttemptSubject::Path(program.join("__pycache__/a.pyc")),
        AttemptAvailability::ReadOnly,
    )];
    let facts = SourceFacts { inside: vec![program], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    assert!(Proposal::of(&attempts, &facts).is_empty());
}

#[test]
fn refused_bytecode_is_counted_and_hides_no_other_write() {
    let home = home();
    // An installed package is in a data folder, where nothing is proposed, and the user's own one in a folder that is
    // named.
    let (installed, own) = (home.path().join(".portcullis/packages/lib"), home.path().join("app"));
    [&installed, &own].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    let facts = SourceFacts { named: vec![own.clone()], home: Some(home.path().to_owned()), ..SourceFacts::default() };
    let write =
        |path: PathBuf| attempt(AttemptAction::Write, AttemptSubject::Path(path), AttemptAvailability::ReadOnly);
    let bytecode = |n: usize| write(installed.join(format!("{n}/__pycache__/a.cpython-312.pyc.1")));
    let mut attempts: Vec<_> = (0..70).map(bytecode).collect();
    attempts.push(write(own.join("__pycache__")));
    let proposal = Proposal::of(&attempts, &facts);
    assert_eq!((&*proposal.lines, &*proposal.withheld, proposal.bytecode), (&[][..], &[][..], 71), "{proposal:?}");
    attempts.push(write(installed.join("state.db")));
    attempts.push(write(own.join("notes.txt")));
    let proposal = Proposal::of(&attempts, &facts);
    assert_eq!(values(&proposal.lines), [("write", own.display().to_string())], "{proposal:?}");
    assert_eq!(values(&proposal.withheld), [("write", installed.join("state.db").display().to_string())]);
    // A file kept in such a folder and read is not bytecode that Python tries to write.
    std::fs::create_dir_all(home.path().join(".ssh/__pycache__")).unwrap();
    std::fs::write(home.path().join(".ssh/__pycache__/id_rsa"), "").unwrap();
    let read = hidden(AttemptAction::Read, &home.path().join(".ssh/__pycache__/id_rsa"));
    assert_eq!(Proposal::of(&[read], &facts).withheld.len(), 1);
}
