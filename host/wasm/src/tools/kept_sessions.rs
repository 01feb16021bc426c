//! The instances that all components of tools together keep between the calls of their sessions. Each holds its slots,
//! so they are at most half of all: the rest is for calls, however many sessions are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use portcullis_core::limits::TOOL_SLOTS;
use portcullis_core::sync::Mutex;

use super::super::PluginIdentity;
use super::{OpenSession, SessionInstance};

/// The sessions whose instances are kept, the most recently used one first.
#[derive(Default)]
pub(crate) struct KeptSessions(Mutex<VecDeque<KeptSession>>);

struct KeptSession {
    instance: Weak<tokio::sync::Mutex<Option<OpenSession>>>,
    /// The slots that the instance holds.
    weight: u32,
    plugin: Arc<PluginIdentity>,
}

impl KeptSessions {
    /// Notes that a call has used an instance, and discards those that were not used for the longest time if too many
    /// slots are held. An instance that is at work is not discarded and does not count: it has its turn.
    pub(super) fn used(&self, instance: &SessionInstance, weight: u32, plugin: &Arc<PluginIdentity>) {
        let latest = KeptSession { instance: Arc::downgrade(instance), weight, plugin: Arc::clone(plugin) };
        let mut discarded = Vec::new();
        let mut left = TOOL_SLOTS / 2;
        let mut sessions = self.0.lock();
        sessions.retain(|session| !session.instance.ptr_eq(&latest.instance));
        sessions.push_front(latest);
        sessions.retain(|session| {
            let Some(instance) = session.instance.upgrade() else { return false };
            let Ok(mut open) = instance.try_lock() else { return true };
            if open.is_none() {
                return false;
            }
            if let Some(rest) = left.checked_sub(session.weight) {
                left = rest;
                return true;
            }
            let plugin = &session.plugin.name;
            tracing::info!(%plugin, "all sources keep too many sessions; the least recently used one starts anew");
            discarded.push(open.take());
            false
        });
        // Dropping an instance takes a while, during which no other call waits.
        drop(sessions);
        drop(discarded);
    }
}
