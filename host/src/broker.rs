//! The broker: what an embedder builds, and the single entry point.

use std::sync::Arc;

use crate::config::Config;
use crate::message::RpcError;
use crate::name::ProfileName;
use crate::session::Session;

/// A running broker.
#[derive(Debug, Clone)]
pub struct Broker {
    config: Arc<Config>,
}

impl Broker {
    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Opens a session for a caller that a front has identified. Opens no source.
    ///
    /// # Errors
    /// An unknown profile, or a ledger that cannot record the session.
    pub async fn open_session(
        &self,
        _profile: &ProfileName,
        _principal: &str,
        _client: &str,
    ) -> Result<Arc<Session>, RpcError> {
        Err(RpcError::new(RpcError::INTERNAL, "skeleton"))
    }
}
