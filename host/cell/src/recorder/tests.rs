#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn path(text: String) -> AttemptSubject {
    AttemptSubject::Path(text.into())
}

#[test]
fn writes_executions_and_uses_of_watched_files_have_room_beside_a_flood() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "").unwrap();
    let recording = Recording::default();
    recording.watch(&key).unwrap();
    let note = |action, subject| recording.note(action, subject, AttemptAvailability::Granted, String::new());
    for at in 0..MAX_ATTEMPTS {
        note(Action::Look, path(format!("/look/{at}")));
    }
    note(Action::Read, path("/read".to_owned()));
    for at in 0..MAX_ATTEMPTS {
        note(Action::Read, path(format!("/read/{at}")));
    }
    note(Action::Write, path("/write".to_owned()));
    note(Action::Execute, path("/program".to_owned()));
    for at in 0..MAX_ATTEMPTS {
        note(Action::Write, path(format!("/write/{at}")));
    }
    for action in [Action::Look, Action::Read] {
        note(action, AttemptSubject::Path(key.clone()));
    }
    let kept = recording.attempts();
    let has = |action, at: &str| kept.iter().any(|one| one.action == action && one.subject == path(at.to_owned()));
    assert!(has(Action::Read, "/read") && has(Action::Write, "/write") && has(Action::Execute, "/program"));
    let key = key.display().to_string();
    assert!(has(Action::Look, &key) && has(Action::Read, &key), "a watched file always has room");
    assert!(kept.len() <= MAX_ATTEMPTS + 2 && recording.crowded_out() > 0);
}
