//! The interface through which a front uses the broker. Tests of the protocol implement it with a fake.

use std::sync::Arc;

use async_trait::async_trait;

use crate::agent::{Agent, AgentPeer};
use crate::broker::Broker;
use crate::gate::{AnswerResult, AnswerRoute, GivenAnswer, InboxError, Question};
use crate::item::ItemKind;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{Answer, Json, Method, Notification, RpcError};
use crate::session::{AdvertisedCapabilities, ListPage, Session};

/// A broker, which opens sessions.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// See [`Broker::open_session_of`].
    async fn open(
        &self,
        profile: &ProfileName,
        principal: &Principal,
        agent: Agent,
    ) -> Result<Arc<dyn FrontSession>, RpcError>;

    /// See [`Broker::metrics`].
    fn metrics(&self) -> String;

    /// See [`Broker::refuses_calls`].
    fn refuses_calls(&self) -> Option<&'static str> {
        None
    }

    /// See [`Inbox::list`](crate::gate::Inbox::list).
    fn questions(&self) -> Vec<Question> {
        Vec::new()
    }

    /// See [`Inbox::question`](crate::gate::Inbox::question).
    fn question(&self, id: &str) -> Result<Question, InboxError> {
        Err(InboxError::Unknown(id.to_owned()))
    }

    /// See [`Inbox::answer`](crate::gate::Inbox::answer): the answer of a person outside the agent's channel.
    async fn answer(&self, id: &str, answer: &GivenAnswer, by: &str) -> Result<AnswerResult, InboxError>;
}

/// One open session; a *run* in the ledger.
#[async_trait]
pub(crate) trait FrontSession: Send + Sync {
    /// See [`Session::offers`].
    async fn offers(&self) -> AdvertisedCapabilities;

    /// See [`Session::list_for`].
    async fn list(&self, kind: ItemKind, params: &Json, peer: Arc<dyn AgentPeer>) -> Result<ListPage, RpcError>;

    /// See [`Session::request`]: dropping the future cancels the call.
    async fn request(&self, method: &Method, params: Json, peer: Arc<dyn AgentPeer>) -> Answer;

    /// See [`Session::notified`].
    fn notified(&self, notification: &Notification);

    /// See [`Session::attach`].
    fn attach(&self, peer: Arc<dyn AgentPeer>);

    /// See [`Session::end_listeners`].
    fn end_listeners(&self) {}

    /// See [`Session::ended`].
    fn ended(&self) -> bool {
        false
    }

    /// See [`Session::close`].
    async fn close(&self);
}

#[async_trait]
impl Backend for Broker {
    async fn open(
        &self,
        profile: &ProfileName,
        principal: &Principal,
        agent: Agent,
    ) -> Result<Arc<dyn FrontSession>, RpcError> {
        let session: Arc<dyn FrontSession> = self.open_session_of(profile, principal.clone(), agent).await?;
        Ok(session)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }

    fn refuses_calls(&self) -> Option<&'static str> {
        Self::refuses_calls(self)
    }

    fn questions(&self) -> Vec<Question> {
        self.inbox().list()
    }

    fn question(&self, id: &str) -> Result<Question, InboxError> {
        self.inbox().question(id)
    }

    async fn answer(&self, id: &str, answer: &GivenAnswer, by: &str) -> Result<AnswerResult, InboxError> {
        self.inbox().answer(id, answer, by, AnswerRoute::Person).await
    }
}

#[async_trait]
impl FrontSession for Session {
    async fn offers(&self) -> AdvertisedCapabilities {
        Self::offers(self).await
    }

    async fn list(&self, kind: ItemKind, params: &Json, peer: Arc<dyn AgentPeer>) -> Result<ListPage, RpcError> {
        Self::list_for(self, kind, params, peer).await
    }

    async fn request(&self, method: &Method, params: Json, peer: Arc<dyn AgentPeer>) -> Answer {
        Self::request(self, method.clone(), params, peer).await
    }

    fn notified(&self, notification: &Notification) {
        Self::notified(self, notification);
    }

    fn attach(&self, peer: Arc<dyn AgentPeer>) {
        Self::attach(self, peer);
    }

    fn end_listeners(&self) {
        Self::end_listeners(self);
    }

    fn ended(&self) -> bool {
        Self::ended(self)
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}
