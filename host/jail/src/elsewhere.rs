//! The launcher on systems without a known way to build a cell: it refuses.

use std::os::unix::net::UnixStream;

use crate::launch::LaunchRequest;
use crate::report::{CellRefusal, EnforcementReport};
use crate::wire;

/// Refuses the request that comes over standard input. Returns the exit status.
pub(crate) fn run() -> i32 {
    let refusal = CellRefusal {
        step: "cell".to_owned(),
        cause: "none can be built on this system".to_owned(),
        errno: None,
        setting: None,
        remedy: Some("run the broker on Linux".to_owned()),
    };
    if let Ok(line) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        let control = UnixStream::from(line);
        // A broker that is gone needs no answer.
        let _ = wire::receive::<LaunchRequest>(&control);
        let _ = wire::send(&control, &Err::<EnforcementReport, _>(refusal), &[]);
    }
    126
}
