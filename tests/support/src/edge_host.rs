//! The program of `examples/edge-host`, built as its README says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{clean, ensure_target, root, run};

const ARM: &str = "aarch64-unknown-linux-gnu";

/// The address space of the program in the emulator, which a small machine for ARM has no more of. A pool of instances
/// does not fit into it, for which the emulator would need a minute and a half at each start.
const ADDRESS_SPACE: &str = "256G";

/// An edge host, by the code that it runs.
#[derive(Clone, Copy, Debug)]
pub enum EdgeHost {
    /// One for this machine, which runs code for its processor.
    Native,
    /// One for this machine, which interprets code for any processor.
    Interpreter,
    /// One for 64-bit ARM, which an emulator runs. Needs Debian's `gcc-aarch64-linux-gnu`, `libc6-dev-arm64-cross` and
    /// `qemu-user`, and another processor than ARM.
    Arm,
}

impl EdgeHost {
    /// Reports whether this machine has what this host is built and run with.
    #[must_use]
    pub fn is_available(self) -> bool {
        let starts = |program| Command::new(program).arg("--version").output().is_ok();
        !matches!(self, Self::Arm) || (starts("aarch64-linux-gnu-gcc") && starts("qemu-aarch64"))
    }

    /// Returns the target of its code, as `portcullis plugin compile --target` takes it, or `None` for this machine's.
    #[must_use]
    pub fn target(self) -> Option<&'static str> {
        match self {
            Self::Native => None,
            Self::Interpreter => Some("pulley64"),
            Self::Arm => Some(ARM),
        }
    }

    /// Builds it with none of the rest of the workspace, and returns the words of the command that runs it.
    ///
    /// # Panics
    /// If it cannot be built, with the output of cargo.
    #[must_use]
    pub fn build(self) -> Vec<OsString> {
        // The test is TARGET/PROFILE/deps/TEST-HASH. Most dependencies are in TARGET already, and cargo holds no lock
        // while tests run.
        let test = std::env::current_exe().unwrap_or_default();
        let target = test.ancestors().nth(3).unwrap_or(&test);
        let mut command = clean(Command::new("cargo"));
        command.args(["build", "--quiet", "--locked", "--package", "portcullis-edge-host", "--target-dir"]).arg(target);
        command.current_dir(root());
        match self {
            Self::Native => {}
            Self::Interpreter => _ = command.args(["--features", "pulley"]),
            Self::Arm => {
                ensure_target(ARM);
                command.args(["--target", ARM]);
                command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
                command.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
            }
        }
        run(command, "the edge host");
        if matches!(self, Self::Arm) {
            let program = target.join(ARM).join("debug/portcullis-edge-host");
            let emulator = ["qemu-aarch64", "-R", ADDRESS_SPACE, "-L", "/usr/aarch64-linux-gnu"];
            return emulator.into_iter().map(OsString::from).chain([program.into()]).collect();
        }
        vec![kept(&target.join("debug/portcullis-edge-host"), self).into()]
    }
}

/// Copies a program to where the build of another host does not replace it, and returns the copy.
fn kept(built: &Path, host: EdgeHost) -> PathBuf {
    let program = built.with_file_name(format!("portcullis-edge-host-of-test-{host:?}"));
    let copied = std::fs::copy(built, &program);
    copied.unwrap_or_else(|error| panic!("{} cannot be written: {error}", program.display()));
    program
}
