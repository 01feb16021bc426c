//! The eras of the protocol that a source speaks, as far as is known, and the era in which a connection to it is made.
//!
//! A connection is made in the era of its agent, because what a server's tools do besides answering may exist in one
//! era only. Once an era is agreed, the other is not tried over the same connection to learn more: some servers speak
//! one era per process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocol::Era;
use crate::source::SourceClient;
use crate::source::mcp_connection::EraChoice;

/// When the modern era is tried before `initialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbePolicy {
    /// It is tried unless the source did not speak it before.
    UnlessMissing,
    /// It is tried whatever was found before.
    Always,
}

/// The eras that a source speaks.
#[derive(Debug, Default)]
pub(super) struct KnownEras {
    /// The only era to be used, whatever the source speaks: `era` of its configuration.
    fixed: Option<Era>,
    /// True once a connection was made with `initialize`.
    legacy_spoken: AtomicBool,
    /// True if the modern era was tried, and the source spoke the legacy one.
    modern_missing: AtomicBool,
    /// True if `initialize` was tried, and the source spoke the modern era.
    legacy_missing: AtomicBool,
}

impl KnownEras {
    /// Returns the eras while only the configured one, if any, is known.
    pub(super) fn of(fixed: Option<Era>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// Returns the only era that can be used with the source, or `None` if there are two or it is not known yet.
    pub(super) fn only_era(&self) -> Option<Era> {
        let learned = if self.modern_missing.load(Ordering::Relaxed) {
            Some(Era::Legacy)
        } else if self.legacy_missing.load(Ordering::Relaxed) {
            Some(Era::Modern)
        } else {
            None
        };
        self.fixed.or(learned)
    }

    /// Returns how a connection for this client begins.
    pub(super) fn choice_for(&self, client: &dyn SourceClient) -> EraChoice {
        match self.only_era() {
            None if client.era() == Some(Era::Legacy) => EraChoice::LegacyFirst,
            _ => EraChoice::ModernFirst,
        }
    }

    /// Reports whether it is known that a connection for this client begins with `initialize`.
    pub(super) fn is_legacy_for(&self, client: &dyn SourceClient) -> bool {
        let wanted = self.only_era() == Some(Era::Legacy) || self.choice_for(client) == EraChoice::LegacyFirst;
        wanted && self.legacy_spoken.load(Ordering::Relaxed)
    }

    /// Returns the choice itself, or [`EraChoice::ModernOnly`] if that is the only era configured.
    pub(super) fn resolve(&self, era_choice: EraChoice) -> EraChoice {
        if self.fixed == Some(Era::Modern) { EraChoice::ModernOnly } else { era_choice }
    }

    /// Reports whether to try the modern era before `initialize`.
    pub(super) fn probes(&self, policy: ProbePolicy) -> bool {
        let is_open = policy == ProbePolicy::Always || !self.modern_missing.load(Ordering::Relaxed);
        self.fixed.is_none() && is_open
    }

    /// Remembers the era in which a connection was made after this choice.
    pub(super) fn learn(&self, era_choice: EraChoice, era: Era) {
        let note = |fact: &AtomicBool, is| fact.store(is, Ordering::Relaxed);
        match era {
            Era::Modern => {
                note(&self.modern_missing, false);
                if era_choice == EraChoice::LegacyFirst {
                    note(&self.legacy_missing, true);
                    note(&self.legacy_spoken, false);
                }
            }
            Era::Legacy => {
                note(&self.legacy_spoken, true);
                note(&self.legacy_missing, false);
                if era_choice == EraChoice::ModernFirst {
                    note(&self.modern_missing, true);
                }
            }
        }
    }
}
