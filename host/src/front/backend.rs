//! What a front needs of the broker: the seam at which the protocol is tested without one.

use std::sync::Arc;

use async_trait::async_trait;

use crate::broker::Broker;
use crate::message::{Answer, Json, RpcError};
use crate::name::ProfileName;
use crate::session::{Contact, Session};

/// Opens sessions.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// See [`Broker::open_session`].
    async fn open(&self, profile: &ProfileName, principal: &str, client: &str) -> Result<Arc<dyn Run>, RpcError>;
}

/// One open session; a *run* in the ledger.
#[async_trait]
pub(crate) trait Run: Send + Sync {
    /// See [`Session::tools`].
    async fn tools(&self) -> Result<Arc<[Json]>, RpcError>;

    /// See [`Session::call_tool`]: dropping the future cancels the call.
    async fn call_tool(&self, params: Json, contact: Arc<dyn Contact>) -> Answer;

    /// See [`Session::ended`].
    fn ended(&self) -> bool {
        false
    }

    /// See [`Session::close`].
    async fn close(&self);
}

#[async_trait]
impl Backend for Broker {
    async fn open(&self, profile: &ProfileName, principal: &str, client: &str) -> Result<Arc<dyn Run>, RpcError> {
        let session: Arc<dyn Run> = self.open_session(profile, principal, client).await?;
        Ok(session)
    }
}

#[async_trait]
impl Run for Session {
    async fn tools(&self) -> Result<Arc<[Json]>, RpcError> {
        Self::tools(self).await
    }

    async fn call_tool(&self, params: Json, contact: Arc<dyn Contact>) -> Answer {
        Self::call_tool(self, params, contact).await
    }

    fn ended(&self) -> bool {
        Self::ended(self)
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}
