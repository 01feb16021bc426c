//! The proof that a call passed.

use std::sync::Arc;

use super::SessionVault;
use crate::call::Call;
use crate::protocol::{Json, Method};
use crate::telemetry::Span;

/// The proof that a call passed the gate and that its intent is durable. Only the gate makes one, and a source takes it by
/// value: one permit, one call.
#[derive(Debug)]
pub struct Permit {
    call: Arc<Call>,
    params: Json,
}

impl Permit {
    /// Private to the gate: this is the only door.
    pub(super) fn new(call: Arc<Call>, vault: &SessionVault, resumed: bool) -> Self {
        let restored = vault.restore(&call);
        let params = call.params_for_source(restored.as_ref()).unwrap_or_else(|| call.params.clone());
        // Answers to the broker's own questions are not the source's to see. A call that goes on has had them taken out.
        let ours: &[&str] =
            if resumed || !call.method.may_be_retried() { &[] } else { &["requestState", "inputResponses"] };
        let found = ours.iter().filter(|key| params.as_str().contains(**key));
        let params = found.fold(params.clone(), |params, key| params.without(key));
        Self { call, params }
    }

    /// A permit that no gate gave, for tests of what stands behind it.
    #[cfg(test)]
    pub(crate) fn unchecked(call: Arc<Call>) -> Self {
        Self::new(call, &SessionVault::default(), false)
    }

    /// The same call, whose source may learn where it is in a trace.
    pub(crate) fn within(self, span: &Span) -> Self {
        Self { params: span.traced(&self.params), ..self }
    }

    /// The call, in placeholder form.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The same, to be kept.
    pub(crate) fn shared_call(&self) -> Arc<Call> {
        self.call.clone()
    }

    /// The MCP method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.call.method
    }

    /// The parameters as the source is to get them: under its own name for the item, placeholders restored, everything
    /// else byte for byte.
    #[must_use]
    pub fn source_params(&self) -> &Json {
        &self.params
    }
}
