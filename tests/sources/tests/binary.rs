//! That a test stands beside the binary makes `cargo test` build it, for those who start it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::process::Command;

#[test]
fn an_unknown_mode_is_refused() {
    let ran = Command::new(env!("CARGO_BIN_EXE_portcullis-test-source")).arg("no-such-mode").output().unwrap();
    assert!(!ran.status.success());
}
