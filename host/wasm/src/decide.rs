//! The plugins that the gate asks: policies, transforms, approvals.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use portcullis_config::PluginConfig;
use portcullis_core::call::{CallView, Phase};
use portcullis_core::metrics::{Decisions, PluginDecision};

use super::description::PassedCalls;
use super::error::PluginFailure;
use super::instance_pool::InstancePool;
use super::native::{self, NativePolicy};
use super::v0_1::{ApprovalWorld, PolicyWorld, TransformWorld};
use super::{AskFacts, PluginIdentity, Settlement, TransformDecision, Vault, Verdict};

macro_rules! decider {
    ($(#[$doc:meta])* $name:ident, $code:ty $(, $setting:ident: $type:ty)?) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            identity: Arc<PluginIdentity>,
            on: Arc<[Phase]>,
            pub(super) code: $code,
            $($setting: $type,)?
            decisions: Arc<Decisions>,
        }

        impl $name {
            pub(super) fn new(identity: PluginIdentity, config: &PluginConfig, code: $code) -> Self {
                let (identity, on) = (Arc::new(identity), config.on.as_slice().into());
                Self { identity, on, code, $($setting: config.$setting,)? decisions: Arc::default() }
            }

            /// Returns which plugin it is.
            #[must_use]
            pub fn identity(&self) -> &PluginIdentity {
                &self.identity
            }

            /// Reports whether the plugin is asked in this phase.
            #[must_use]
            pub fn on(&self, phase: Phase) -> bool {
                self.on.contains(&phase)
            }

            /// Reports whether the plugin can ask for the information flow of a call: the labels and origins. If no
            /// plugin can, nothing of it needs to be kept.
            #[must_use]
            pub fn reads_flow(&self) -> bool {
                self.code.reads_flow()
            }

            /// Returns the counts and times of its decisions so far.
            pub fn decisions(&self) -> &Decisions {
                &self.decisions
            }

            /// Waits for a decision and counts it under the outcome that `word` gives.
            async fn counted<T>(
                &self,
                decision: impl Future<Output = Result<T, PluginFailure>>,
                word: impl Fn(&T) -> PluginDecision,
            ) -> Result<T, PluginFailure> {
                let asked = Instant::now();
                let said = decision.await;
                self.decisions.record(said.as_ref().map_or(PluginDecision::Failed, word), asked.elapsed());
                said
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
    /// A loaded policy, which decides whether a call may continue.
    Policy, PolicyCode, shadow: bool
}
decider! {
    /// A loaded transform, which rewrites arguments or outcomes.
    Transform, InstancePool<TransformWorld>
}
decider! {
    /// A loaded approval plugin, which decides how an ask is settled.
    Approval, InstancePool<ApprovalWorld>
}

/// The code that decides for a policy.
#[derive(Clone)]
pub(super) enum PolicyCode {
    /// A component; each decision gets a fresh instance, but for the calls that it says it passes.
    Component { pool: InstancePool<PolicyWorld>, passes: PassedCalls },
    /// Code of the program that embeds the broker.
    Native(Arc<dyn NativePolicy>),
}

impl PolicyCode {
    fn reads_flow(&self) -> bool {
        match self {
            Self::Component { pool, .. } => pool.reads_flow(),
            Self::Native(policy) => policy.reads_flow(),
        }
    }
}

impl Policy {
    /// Reports whether the policy runs in shadow: its decisions are recorded and never applied.
    #[must_use]
    pub fn shadow(&self) -> bool {
        self.shadow
    }

    /// Judges one call: in a fresh instance, unless it is native or the policy's description says that it passes such
    /// calls. Cancellation safe: dropping the future stops the guest.
    ///
    /// # Errors
    /// [`PluginFailure`], on which the caller must deny.
    pub async fn check(&self, view: &CallView) -> Result<Verdict, PluginFailure> {
        // Boxed, so that a call without plugins does not carry and move the room for one.
        let decision = Box::pin(async {
            let pool = match &self.code {
                PolicyCode::Component { passes, .. } if passes.has(view) => return Ok(Verdict::Pass),
                PolicyCode::Component { pool, .. } => pool,
                PolicyCode::Native(policy) => return native::check(&**policy, view).await,
            };
            let mut live = pool.take().await?;
            live.store.data_mut().facts.view = Some(view.clone());
            live.check().await
        });
        self.counted(decision, |verdict| match verdict {
            Verdict::Pass => PluginDecision::Pass,
            Verdict::Ask(_) => PluginDecision::Ask,
            Verdict::Deny(_) => PluginDecision::Deny,
        })
        .await
    }
}

impl Transform {
    /// Rewrites the arguments or the outcome in a fresh instance. Values that it protects reach `vault` while it runs,
    /// even if it fails later. Cancellation safe.
    ///
    /// # Errors
    /// [`PluginFailure`], on which the caller must deny.
    pub async fn rewrite(&self, view: &CallView, vault: Arc<dyn Vault>) -> Result<TransformDecision, PluginFailure> {
        let decision = Box::pin(async {
            let mut live = self.code.take().await?;
            let facts = &mut live.store.data_mut().facts;
            (facts.view, facts.vault) = (Some(view.clone()), Some(vault));
            live.rewrite().await
        });
        self.counted(decision, |change| match change {
            TransformDecision::Keep => PluginDecision::Keep,
            TransformDecision::Replace(_) => PluginDecision::Replace,
            TransformDecision::Refuse(_) => PluginDecision::Deny,
        })
        .await
    }
}

impl Approval {
    /// Settles one ask in a fresh instance. Cancellation safe.
    ///
    /// # Errors
    /// [`PluginFailure`], on which the caller must deny.
    pub async fn settle(&self, view: &CallView, ask: AskFacts) -> Result<Settlement, PluginFailure> {
        let decision = Box::pin(async {
            let mut live = self.code.take().await?;
            let facts = &mut live.store.data_mut().facts;
            (facts.view, facts.ask) = (Some(view.clone()), Some(ask));
            live.settle().await
        });
        self.counted(decision, |settlement| match settlement {
            Settlement::Question(_) => PluginDecision::Ask,
            Settlement::Remembered(_) => PluginDecision::Remembered,
            Settlement::Refuse(_) => PluginDecision::Deny,
        })
        .await
    }
}
