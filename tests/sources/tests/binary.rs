//! That a test stands beside the binary makes `cargo test` build it, for those who start it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::process::Command;

#[test]
fn it_fails_as_it_is_told() {
    let ran = Command::new(env!("CARGO_BIN_EXE_portcullis-test-source")).arg("exit-now").output().unwrap();
    assert_eq!(ran.status.code(), Some(3));
}
