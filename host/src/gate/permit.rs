//! The proof that a call passed the gate.

use std::sync::Arc;

use crate::call::{Call, CallProgress, Params};
use crate::protocol::{Json, Method};
use crate::telemetry::Span;

/// The proof that a call passed the gate and that its intent is in the ledger: on disk if the call can have an effect.
/// Only the gate makes one, and a source takes it by value: one permit, one call.
#[derive(Debug)]
pub struct Permit {
    call: Arc<Call>,
    params: Json,
    progress: Arc<CallProgress>,
}

impl Permit {
    /// Makes a permit for a call whose source gets these arguments, if placeholders in its own stand for values. Private to
    /// the gate: nothing else makes one.
    pub(super) fn new(call: Arc<Call>, revealed: Option<&Json>, resumed: bool, progress: Arc<CallProgress>) -> Self {
        let params = call.params_for_source(revealed).unwrap_or_else(|| call.params.as_json().clone());
        // Answers to the broker's own questions are not for the source. In a resumed call they are already gone, and
        // any others are for the source.
        let has_ours = !resumed && call.method.may_be_retried() && call.params.is_retry();
        let params = if has_ours { params.without_all(&Params::OF_RETRIES) } else { params };
        Self { call, params, progress }
    }

    /// Makes a permit that no gate gave, for tests of sources.
    #[cfg(test)]
    pub(crate) fn unchecked(call: Arc<Call>) -> Self {
        let progress = CallProgress::new();
        progress.set_open();
        Self::new(call, None, false, progress)
    }

    /// Returns the progress of the call.
    pub(crate) fn progress(&self) -> Arc<CallProgress> {
        Arc::clone(&self.progress)
    }

    /// Waits for something that comes before anything of the call is sent, such as a place or a connection. If the call
    /// is dropped meanwhile, its outcome is recorded as `not-sent`.
    pub(crate) async fn before_sending<T>(&self, wait: impl Future<Output = T>) -> T {
        self.progress.set_unsent();
        let waited = wait.await;
        self.progress.set_open();
        waited
    }

    /// Returns the permit with the span as the parent in its parameters: the source learns its place in the trace.
    pub(crate) fn with_trace(self, span: &Span) -> Self {
        Self { params: span.traced(&self.params), ..self }
    }

    /// Returns the call, in placeholder form.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns an owned handle to the call.
    pub(crate) fn shared_call(&self) -> Arc<Call> {
        self.call.clone()
    }

    /// Returns the MCP method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.call.method
    }

    /// Returns the parameters for the source: under its own name for the item, placeholders restored, everything else
    /// byte for byte.
    #[must_use]
    pub fn source_params(&self) -> &Json {
        &self.params
    }
}
