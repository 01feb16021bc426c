//! The gate.

/// The proof that a call passed.
#[derive(Debug)]
pub struct Permit {
    pub(crate) call: std::sync::Arc<crate::call::Call>,
}
