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
    let note = |action, subject| recording.record(action, subject, AttemptAvailability::Granted, String::new());
    for at in 0..MAX_ATTEMPTS {
        note(AttemptAction::Look, path(format!("/look/{at}")));
    }
    note(AttemptAction::Read, path("/read".to_owned()));
    for at in 0..MAX_ATTEMPTS {
        note(AttemptAction::Read, path(format!("/read/{at}")));
    }
    note(AttemptAction::Write, path("/write".to_owned()));
    note(AttemptAction::Execute, path("/program".to_owned()));
    for at in 0..MAX_ATTEMPTS {
        note(AttemptAction::Write, path(format!("/write/{at}")));
    }
    for action in [AttemptAction::Look, AttemptAction::Read] {
        note(action, AttemptSubject::Path(key.clone()));
    }
    let kept = recording.attempts();
    let has = |action, at: &str| kept.iter().any(|one| one.action == action && one.subject == path(at.to_owned()));
    assert!(
        has(AttemptAction::Read, "/read")
            && has(AttemptAction::Write, "/write")
            && has(AttemptAction::Execute, "/program")
    );
    let key = key.display().to_string();
    assert!(has(AttemptAction::Look, &key) && has(AttemptAction::Read, &key), "a watched file always has room");
    assert!(kept.len() <= MAX_ATTEMPTS + 2 && recording.crowded_out() > 0);
}
