//! The keys that sign checkpoints, and those that are kept when they are replaced.

use super::*;

#[test]
fn keys_that_are_replaced_at_the_same_time_are_all_kept() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("state");
    let rotate = || CheckpointKey::rotate(&state).unwrap().public().clone();
    let made: Vec<PublicKey> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(rotate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let trusted = CheckpointKey::trusted(&state).unwrap();
    assert!(made.iter().all(|key| trusted.contains(key)), "{made:?} {trusted:?}");
    assert_eq!(trusted.len(), 9, "with the first one");
    std::fs::write(state.join("checkpoint.earlier"), "portcullis+94\n").unwrap();
    let before = CheckpointKey::open(&state).unwrap().public().clone();
    assert!(CheckpointKey::rotate(&state).unwrap_err().to_string().contains("line 1"));
    assert_eq!(CheckpointKey::open(&state).unwrap().public(), &before, "no key is lost");
}
