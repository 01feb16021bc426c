//! Policies and sinks that the embedding program provides, written in Rust.
//!
//! They do not run in a sandbox: they are as trusted as the program. Their decisions pass the same gate, in the order
//! of the configuration, and the ledger names them `native:NAME`.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use portcullis_config::PluginConfig;
use portcullis_core::call::CallView;
use portcullis_core::digest::Digest;
use portcullis_core::limits::CallLimits;
use portcullis_core::protocol::Json;
use serde_json::json;
use tokio::time::timeout;

use super::error::{FailureCode, PluginError, PluginFailure};
use super::{PluginIdentity, Verdict};

/// The error of a native policy or sink.
pub type NativeError = Box<dyn Error + Send + Sync>;

/// A policy that is part of the program. The configuration places it: `plugin = "native:NAME"` in `[[policies]]`.
#[async_trait]
pub trait NativePolicy: Send + Sync {
    /// Returns the version of what the policy decides. Answers of people are remembered for one version, and records
    /// name it by its digest: change it whenever the same call may get another verdict. It must not change while the
    /// broker runs.
    fn version(&self) -> &str;

    /// Judges one call. A call is denied if this fails or panics, or takes longer than ten seconds; dropping the future
    /// must be safe. It must not block its thread, on which other calls run: it cannot be interrupted there, and its
    /// verdict does not count if it comes too late.
    ///
    /// # Errors
    /// Any error denies the call with the code `plugin-error`. Its text goes to the operator, and to the ledger as
    /// payloads do.
    async fn check(&self, view: &CallView) -> Result<Verdict, NativeError>;

    /// Reports whether the policy reads the labels of what the session has seen, [`CallView::labels`]. Unless a policy
    /// does, none are kept.
    fn reads_flow(&self) -> bool {
        false
    }
}

/// A receiver of the ledger's records that is part of the program. The configuration places it:
/// `plugin = "native:NAME"` in `[[sinks]]`.
#[async_trait]
pub trait NativeSink: Send + Sync {
    /// Takes a batch of records, each a line of JSON, in order. Delivery is at least once: drop records seen before, by
    /// `chain` and `seq`. It must not block its thread. No call waits for it; a batch that takes longer than twelve
    /// seconds has failed.
    ///
    /// # Errors
    /// After any error, or a panic, the batch comes again after a pause.
    async fn deliver(&self, records: &[String]) -> Result<(), NativeError>;
}

#[async_trait]
impl<P: NativePolicy + ?Sized> NativePolicy for Arc<P> {
    fn version(&self) -> &str {
        (**self).version()
    }

    async fn check(&self, view: &CallView) -> Result<Verdict, NativeError> {
        (**self).check(view).await
    }

    fn reads_flow(&self) -> bool {
        (**self).reads_flow()
    }
}

#[async_trait]
impl<S: NativeSink + ?Sized> NativeSink for Arc<S> {
    async fn deliver(&self, records: &[String]) -> Result<(), NativeError> {
        (**self).deliver(records).await
    }
}

/// The policies and sinks of the program, by name.
#[derive(Clone, Default)]
pub struct NativePlugins {
    /// The policies.
    pub policies: BTreeMap<String, Arc<dyn NativePolicy>>,
    /// The sinks.
    pub sinks: BTreeMap<String, Arc<dyn NativeSink>>,
}

impl NativePlugins {
    /// Returns the policy `native:NAME`.
    pub(super) fn policy(&self, name: &str) -> Result<Arc<dyn NativePolicy>, PluginError> {
        self.policies.get(name).cloned().ok_or_else(|| unknown("policy", name, self.policies.keys()))
    }

    /// Returns the sink `native:NAME`.
    pub(super) fn sink(&self, name: &str) -> Result<Arc<dyn NativeSink>, PluginError> {
        self.sinks.get(name).cloned().ok_or_else(|| unknown("sink", name, self.sinks.keys()))
    }
}

impl fmt::Debug for NativePlugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativePlugins")
            .field("policies", &self.policies.keys())
            .field("sinks", &self.sinks.keys())
            .finish()
    }
}

fn unknown<'a>(role: &'static str, name: &str, known: impl Iterator<Item = &'a String>) -> PluginError {
    let known: Vec<_> = known.map(|known| format!("`native:{known}`")).collect();
    let known = if known.is_empty() { "it brings none".to_owned() } else { format!("it brings {}", known.join(", ")) };
    PluginError::UnknownNative { role, name: name.to_owned(), known }
}

/// Returns the identity of what a program calls `native:NAME`, in this version.
pub(super) fn identity(name: &str, version: &str) -> PluginIdentity {
    PluginIdentity {
        name: format!("native:{name}"),
        digest: Digest::of(json!({ "native": name, "version": version }).to_string().as_bytes()),
        settings: Digest::of(Json::empty_object().as_bytes()),
    }
}

/// Asks a native policy.
pub(super) async fn check(policy: &dyn NativePolicy, view: &CallView) -> Result<Verdict, PluginFailure> {
    check_within(CallLimits::DECISION, policy, view).await
}

async fn check_within(
    limits: CallLimits,
    policy: &dyn NativePolicy,
    view: &CallView,
) -> Result<Verdict, PluginFailure> {
    let begun = Instant::now();
    let verdict = contained(limits, async { policy.check(view).await }).await?;
    // A policy that blocks its thread cannot be interrupted, and answers when its time is over.
    if begun.elapsed() > limits.wall_clock { Err(late(limits)) } else { verdict.checked() }
}

/// Hands records to a native sink.
pub(super) async fn deliver(sink: &dyn NativeSink, records: &[String]) -> Result<(), PluginFailure> {
    contained(CallLimits::DELIVER, async { sink.deliver(records).await }).await
}

/// Waits for the program's own code as long as its limits allow. A panic ends only this.
async fn contained<T>(
    limits: CallLimits,
    code: impl Future<Output = Result<T, NativeError>>,
) -> Result<T, PluginFailure> {
    match timeout(limits.wall_clock, AssertUnwindSafe(code).catch_unwind()).await {
        Ok(Ok(Ok(done))) => Ok(done),
        Ok(Ok(Err(error))) => Err(PluginFailure::new(FailureCode::Error, error.to_string())),
        Ok(Err(panic)) => Err(PluginFailure::new(FailureCode::Trap, format!("it panicked: {}", words(&*panic)))),
        Err(_) => Err(late(limits)),
    }
}

/// Returns the failure of what did not answer in time.
fn late(limits: CallLimits) -> PluginFailure {
    let detail = format!("it did not answer within {} s", limits.wall_clock.as_secs_f32());
    PluginFailure::new(FailureCode::Deadline, detail)
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Refuses settings, grants and a file: a native plugin gets its needs from its program.
pub(crate) fn has_no_keys_of_components(config: &PluginConfig) -> Result<(), PluginError> {
    let has_settings = config.settings.as_object().is_some_and(|settings| !settings.is_empty());
    let keys = [
        (has_settings, "`settings` cannot reach it: remove the key, and let the program set it up"),
        (!config.grant.is_empty(), "it needs no `grant`: remove the key"),
        (config.file.is_some(), "it has no `file`: remove the key, and let the program choose where it writes"),
    ];
    match keys.into_iter().find(|(given, _)| *given) {
        Some((_, why)) => Err(PluginError::Native { plugin: config.plugin.to_string(), why }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use portcullis_core::testing::view;

    use super::*;

    struct Endless;

    #[async_trait]
    impl NativePolicy for Endless {
        fn version(&self) -> &str {
            "1"
        }

        async fn check(&self, _: &CallView) -> Result<Verdict, NativeError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_native_policy_that_never_answers_has_failed() {
        let failure = check(&Endless, &view("{}")).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::Deadline, "{failure}");
    }

    /// A policy that blocks its thread before it lets the call pass.
    struct Blocking;

    #[async_trait]
    impl NativePolicy for Blocking {
        fn version(&self) -> &str {
            "1"
        }

        async fn check(&self, _: &CallView) -> Result<Verdict, NativeError> {
            std::thread::sleep(Duration::from_millis(2));
            Ok(Verdict::Pass)
        }
    }

    #[tokio::test]
    async fn a_verdict_that_a_native_policy_gives_too_late_does_not_count() {
        let limits = CallLimits { wall_clock: Duration::from_millis(1), ..CallLimits::DECISION };
        let failure = check_within(limits, &Blocking, &view("{}")).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::Deadline, "{failure}");
        assert_eq!(check(&Blocking, &view("{}")).await.unwrap(), Verdict::Pass);
    }

    #[test]
    fn another_version_is_another_plugin() {
        assert_ne!(identity("a", "1").digest, identity("a", "2").digest);
        assert_ne!(identity("a", "1").digest, identity("b", "1").digest);
    }
}
