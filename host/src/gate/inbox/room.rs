//! The room for open questions: limits of a session, of a caller, and of all together.

use std::collections::HashMap;
use std::sync::Arc;

use super::{InboxError, OpenQuestion};
use crate::ledger::GrantBinding;

/// The most questions that may be open at once: more than a person can read. Beyond it calls are denied.
pub(super) const MAX_OPEN: usize = 256;

/// The most questions of one caller, in all of its sessions: a share that leaves room for other callers.
const MAX_OPEN_PER_PRINCIPAL: usize = 64;

/// The most questions of one session: a share that leaves room for others when an agent runs away.
const MAX_OPEN_PER_SESSION: usize = 32;

/// The most bytes of arguments and reasons of all open questions, which are kept until they are answered.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The most bytes of arguments and reasons of the open questions of one caller.
const MAX_BYTES_PER_PRINCIPAL: usize = 32 * 1024 * 1024;

/// The most bytes of arguments and reasons of the open questions of one session.
const MAX_BYTES_PER_SESSION: usize = 16 * 1024 * 1024;

/// The way out where no more questions can be opened.
const ANSWER_SOME: &str = "a person must answer some first (`portcullis approvals list`)";

/// The number of open questions, and the bytes of their arguments and reasons.
#[derive(Default)]
struct Taken {
    questions: usize,
    bytes: usize,
}

impl Taken {
    fn add(&mut self, bytes: usize) {
        self.questions += 1;
        self.bytes += bytes;
    }

    /// Reports whether these questions and one more of this many bytes stay within two limits.
    fn has_room(&self, bytes: usize, (max_questions, max_bytes): (usize, usize)) -> Result<(), Exceeded> {
        if self.questions >= max_questions {
            Err(Exceeded::Questions(max_questions))
        } else if self.bytes + bytes > max_bytes {
            Err(Exceeded::Bytes(max_bytes))
        } else {
            Ok(())
        }
    }
}

/// The limit that one more question would exceed.
enum Exceeded {
    Questions(usize),
    Bytes(usize),
}

/// Checks that the session and the caller of a binding may open one more question, which keeps this many bytes.
pub(super) fn check(
    open: &HashMap<String, Arc<OpenQuestion>>,
    binding: &GrantBinding,
    bytes: usize,
) -> Result<(), InboxError> {
    if bytes > MAX_BYTES_PER_SESSION {
        let mib = MAX_BYTES_PER_SESSION >> 20;
        let why = format!("the arguments and reasons of a question may have {mib} MiB at most: send smaller arguments");
        return Err(InboxError::Full(why));
    }
    let (mut of_session, mut of_principal, mut of_all) = (Taken::default(), Taken::default(), Taken::default());
    for pending in open.values() {
        of_all.add(pending.bytes);
        if pending.terms.binding.principal == binding.principal {
            of_principal.add(pending.bytes);
        }
        if pending.session() == &binding.session {
            of_session.add(pending.bytes);
        }
    }
    for (whose, taken, limits) in [
        ("this session has", of_session, (MAX_OPEN_PER_SESSION, MAX_BYTES_PER_SESSION)),
        ("this caller has", of_principal, (MAX_OPEN_PER_PRINCIPAL, MAX_BYTES_PER_PRINCIPAL)),
        ("all callers have", of_all, (MAX_OPEN, MAX_BYTES)),
    ] {
        taken.has_room(bytes, limits).map_err(|exceeded| {
            InboxError::Full(match exceeded {
                Exceeded::Questions(most) => {
                    format!("{whose} {most} questions open, the most that may be: {ANSWER_SOME}")
                }
                Exceeded::Bytes(most) => {
                    let mib = most >> 20;
                    format!(
                        "{whose} open questions whose arguments, with these, are more than {mib} MiB: {ANSWER_SOME}"
                    )
                }
            })
        })?;
    }
    Ok(())
}
