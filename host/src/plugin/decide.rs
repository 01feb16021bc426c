//! The plugins that the gate asks: policies, transforms, approvals.

use std::fmt;
use std::sync::Arc;

use super::error::Failure;
use super::stock::Stock;
use super::v0_1::{ApprovalWorld, PolicyWorld, TransformWorld};
use super::{AskFacts, Change, Identity, Settlement, Vault, Verdict};
use crate::call::{Phase, View};
use crate::config::PluginConfig;

macro_rules! decider {
    ($(#[$doc:meta])* $name:ident, $world:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            identity: Arc<Identity>,
            on: Arc<[Phase]>,
            shadow: bool,
            stock: Stock<$world>,
        }

        impl $name {
            pub(super) fn new(identity: Identity, config: &PluginConfig, stock: Stock<$world>) -> Self {
                let (identity, on) = (Arc::new(identity), config.on.as_slice().into());
                Self { identity, on, shadow: config.shadow, stock }
            }

            /// Which plugin it is.
            #[must_use]
            pub fn identity(&self) -> &Identity {
                &self.identity
            }

            /// Whether it is asked in this phase.
            #[must_use]
            pub fn on(&self, phase: Phase) -> bool {
                self.on.contains(&phase)
            }

            /// Whether what it says is recorded and never applied.
            #[must_use]
            pub fn shadow(&self) -> bool {
                self.shadow
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("identity", &self.identity).finish_non_exhaustive()
            }
        }
    };
}

decider! {
    /// Decides whether a call may go on.
    Policy, PolicyWorld
}
decider! {
    /// Rewrites arguments or outcomes.
    Transform, TransformWorld
}
decider! {
    /// Decides how an ask is settled.
    Approval, ApprovalWorld
}

impl Policy {
    /// Judges one call in a fresh instance. Cancellation safe: dropping the future ends the guest.
    ///
    /// # Errors
    /// [`Failure`], on which the caller must deny.
    pub async fn check(&self, view: &View) -> Result<Verdict, Failure> {
        let mut live = self.stock.take().await?;
        live.store.data_mut().facts.view = Some(view.clone());
        live.check().await
    }
}

impl Transform {
    /// Rewrites the arguments or the outcome in a fresh instance. What it protects goes to `vault` while it runs, also when it
    /// fails later. Cancellation safe.
    ///
    /// # Errors
    /// [`Failure`], on which the caller must deny.
    pub async fn rewrite(&self, view: &View, vault: Arc<dyn Vault>) -> Result<Change, Failure> {
        let mut live = self.stock.take().await?;
        let facts = &mut live.store.data_mut().facts;
        (facts.view, facts.vault) = (Some(view.clone()), Some(vault));
        live.rewrite().await
    }
}

impl Approval {
    /// Settles one ask in a fresh instance. Cancellation safe.
    ///
    /// # Errors
    /// [`Failure`], on which the caller must deny.
    pub async fn settle(&self, view: &View, ask: AskFacts) -> Result<Settlement, Failure> {
        let mut live = self.stock.take().await?;
        let facts = &mut live.store.data_mut().facts;
        (facts.view, facts.ask) = (Some(view.clone()), Some(ask));
        live.settle().await
    }
}
