//! Errors of the launcher: each names the step that failed, the setting that decides it on this machine, and the
//! remedy.

use std::fmt::Display;
use std::io;

use crate::report::CellRefusal;

pub(crate) trait StepExt<T> {
    /// Names the step in the error, if it failed.
    fn step(self, step: impl Display) -> Result<T, CellRefusal>;
}

impl<T, E: Into<io::Error>> StepExt<T> for Result<T, E> {
    fn step(self, step: impl Display) -> Result<T, CellRefusal> {
        self.map_err(|error| explained(step.to_string(), &error.into()))
    }
}

/// Returns a refusal that is not due to an error of the kernel.
pub(crate) fn refused(step: impl Display, cause: impl Display, remedy: impl Display) -> CellRefusal {
    let (step, cause, remedy) = (step.to_string(), cause.to_string(), Some(remedy.to_string()));
    CellRefusal { step, cause, errno: None, setting: None, remedy }
}

fn explained(step: String, error: &io::Error) -> CellRefusal {
    let errno = error.raw_os_error();
    let (setting, remedy) = errno.and_then(|errno| explanation(&step, errno)).unzip();
    CellRefusal { step, cause: error.to_string(), errno, setting, remedy }
}

/// The command that allows namespaces to users.
const MORE_NAMESPACES: &str = "run `sudo sysctl -w user.max_user_namespaces=10000`";

/// Returns the setting that most likely decides the step, and what to do.
fn explanation(step: &str, errno: i32) -> Option<(String, String)> {
    let (setting, remedy) = match (step, errno) {
        ("namespaces", libc::ENOSPC) => ("user.max_user_namespaces", MORE_NAMESPACES),
        ("namespaces" | "map the user", libc::EPERM | libc::EACCES) => denied_namespaces(),
        ("mount /proc", libc::EPERM) => (
            "the container that hides parts of /proc",
            "with Docker, start it with --security-opt systempaths=unconfined",
        ),
        ("seccomp", libc::EINVAL) => ("CONFIG_SECCOMP_FILTER", "use a kernel with seccomp filters"),
        ("own cgroup", _) => ("the delegation of the cgroup", "start the broker with `systemd-run --user --scope`"),
        _ => return None,
    };
    Some((setting.to_owned(), remedy.to_owned()))
}

/// Returns the setting that denies namespaces to users here, and what to do.
fn denied_namespaces() -> (&'static str, &'static str) {
    let is = |file: &str, value: &str| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        let remedy = "install bubblewrap (`sudo apt-get install bubblewrap`), or give the broker an AppArmor profile \
                      with `userns,`, or run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`";
        ("kernel.apparmor_restrict_unprivileged_userns", remedy)
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        (
            "kernel.unprivileged_userns_clone",
            "run `sudo sysctl -w kernel.unprivileged_userns_clone=1`, or install bubblewrap",
        )
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        ("user.max_user_namespaces", MORE_NAMESPACES)
    } else {
        let remedy = "if this is a container, start it with a seccomp profile that allows user namespaces";
        ("the container's seccomp profile or a security module", remedy)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_refusal_names_the_step_the_errno_the_setting_and_the_remedy() {
        let failed: io::Result<()> = Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let refusal = failed.step("namespaces").unwrap_err();
        assert_eq!(refusal.errno, Some(libc::ENOSPC));
        assert_eq!(
            refusal.to_string(),
            "step `namespaces` failed: No space left on device (os error 28) (decided by user.max_user_namespaces); \
             run `sudo sysctl -w user.max_user_namespaces=10000`"
        );
        let refusal = refused("open the mounts", "/a does not exist", "create it");
        assert_eq!(refusal.to_string(), "step `open the mounts` failed: /a does not exist; create it");
    }
}
