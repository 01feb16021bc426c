//! Which eras of the protocol a source speaks, as far as is known, and in which one a connection to it is made.
//!
//! A connection is made in the era of the agent that it is for, as what a server's tools do beside answering may exist in one
//! era alone. Nothing is asked twice over one connection to find that out: some servers speak one era per process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocol::Era;
use crate::source::SourceClient;
use crate::source::link::Opening;

/// The eras that a source speaks.
#[derive(Debug, Default)]
pub(super) struct Eras {
    /// The only one that is spoken with it, whatever it speaks: `era` of its configuration.
    fixed: Option<Era>,
    /// A connection with `initialize` was made.
    legacy_met: AtomicBool,
    /// The newest era was tried, and it spoke the older one.
    modern_missing: AtomicBool,
    /// `initialize` was tried, and it spoke the newest era.
    legacy_missing: AtomicBool,
}

impl Eras {
    /// Nothing is known yet but what the configuration says.
    pub(super) fn of(fixed: Option<Era>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// The only era that can be spoken with the source; None if there are two, or nobody has tried yet.
    pub(super) fn only(&self) -> Option<Era> {
        let learned = match () {
            () if self.modern_missing.load(Ordering::Relaxed) => Some(Era::Legacy),
            () if self.legacy_missing.load(Ordering::Relaxed) => Some(Era::Modern),
            () => None,
        };
        self.fixed.or(learned)
    }

    /// How a connection for this client begins.
    pub(super) fn opening_for(&self, client: &dyn SourceClient) -> Opening {
        match self.only() {
            None if client.era() == Some(Era::Legacy) => Opening::LegacyFirst,
            _ => Opening::Newest,
        }
    }

    /// Whether it is known that a connection for this client begins with `initialize`.
    pub(super) fn is_legacy_for(&self, client: &dyn SourceClient) -> bool {
        let wanted = self.only() == Some(Era::Legacy) || self.opening_for(client) == Opening::LegacyFirst;
        wanted && self.legacy_met.load(Ordering::Relaxed)
    }

    /// The same beginning as the configuration has it.
    pub(super) fn settled(&self, opening: Opening) -> Opening {
        if self.fixed == Some(Era::Modern) { Opening::Modern } else { opening }
    }

    /// Whether to ask for the newest era before `initialize`. `from_nothing`, what was learned does not count.
    pub(super) fn probes(&self, from_nothing: bool) -> bool {
        self.fixed.is_none() && (from_nothing || !self.modern_missing.load(Ordering::Relaxed))
    }

    /// Remembers in which era a connection was made that began so.
    pub(super) fn learn(&self, opening: Opening, modern: bool) {
        let note = |fact: &AtomicBool, is| fact.store(is, Ordering::Relaxed);
        if modern {
            note(&self.modern_missing, false);
            if opening == Opening::LegacyFirst {
                note(&self.legacy_missing, true);
                note(&self.legacy_met, false);
            }
        } else {
            note(&self.legacy_met, true);
            note(&self.legacy_missing, false);
            if opening == Opening::Newest {
                note(&self.modern_missing, true);
            }
        }
    }
}
