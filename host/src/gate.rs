//! The gate.

/// The proof that a call passed.
#[derive(Debug)]
pub struct Permit {
    pub(crate) call: std::sync::Arc<crate::call::Call>,
}

impl Permit {
    /// The call that passed.
    #[must_use]
    pub fn call(&self) -> &crate::call::Call {
        &self.call
    }

    /// The MCP method to send.
    pub(crate) fn method(&self) -> &str {
        &self.call.method
    }

    /// The parameters as the source gets them.
    pub(crate) fn source_params(&self) -> &crate::message::Json {
        &self.call.params
    }
}
