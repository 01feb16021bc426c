//! The gate.

/// The proof that a call passed.
#[derive(Debug)]
pub struct Permit {
    pub(crate) call: std::sync::Arc<crate::call::Call>,
    pub(crate) source_params: crate::message::Json,
}

impl Permit {
    /// The MCP method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.call.method
    }

    /// The call that passed.
    #[must_use]
    pub fn call(&self) -> &crate::call::Call {
        &self.call
    }

    /// `params` for the source: its own name of the tool, and the arguments with placeholders put back.
    #[must_use]
    pub fn source_params(&self) -> &crate::message::Json {
        &self.source_params
    }
}
