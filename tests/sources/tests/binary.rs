//! A test of the binary, because of which `cargo test` builds it; other tests start it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::process::Command;

#[test]
fn the_fake_source_exits_as_its_argument_says() {
    let ran = Command::new(env!("CARGO_BIN_EXE_portcullis-test-source")).arg("exit-now").output().unwrap();
    assert_eq!(ran.status.code(), Some(3));
}
