//! The interface through which a front uses the broker. Tests of the protocol implement it with a fake. The methods return
//! boxes for the reason that [`AgentPeer`] gives.

use std::net::IpAddr;
use std::sync::Arc;

use crate::agent::{Agent, AgentPeer};
use crate::broker::Broker;
use crate::gate::{AnswerResult, AnswerRoute, GivenAnswer, InboxError, Question};
use crate::item::ItemKind;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{Answer, Json, Method, Notification, RpcError};
use crate::session::{AdvertisedCapabilities, ListPage, Session};
use futures_util::future::BoxFuture;

/// A broker, which opens sessions.
pub(crate) trait Backend: Send + Sync {
    /// See [`Broker::open_session_of`].
    fn open<'a>(
        &'a self,
        profile: &'a ProfileName,
        principal: &'a Principal,
        agent: Agent,
    ) -> BoxFuture<'a, Result<Arc<dyn FrontSession>, RpcError>>;

    /// See [`Broker::rejected`]. Does not block: it is called on the connection's task.
    fn rejected(&self, reason: &'static str, peer: IpAddr);

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
    fn answer<'a>(
        &'a self,
        id: &'a str,
        answer: &'a GivenAnswer,
        by: &'a str,
    ) -> BoxFuture<'a, Result<AnswerResult, InboxError>>;
}

/// One open session; a *run* in the ledger.
pub(crate) trait FrontSession: Send + Sync {
    /// See [`Session::offers`].
    fn offers(&self) -> BoxFuture<'_, AdvertisedCapabilities>;

    /// See [`Session::list_for`].
    fn list<'a>(
        &'a self,
        kind: ItemKind,
        params: &'a Json,
        peer: Arc<dyn AgentPeer>,
    ) -> BoxFuture<'a, Result<ListPage, RpcError>>;

    /// See [`Session::list`]: the tools as they were listed last.
    fn listed_tools(&self) -> BoxFuture<'_, Result<Arc<[Json]>, RpcError>>;

    /// See [`Session::request`]: dropping the future cancels the call.
    fn request<'a>(&'a self, method: &'a Method, params: Json, peer: Arc<dyn AgentPeer>) -> BoxFuture<'a, Answer>;

    /// See [`Session::notified`].
    fn notified(&self, notification: &Notification);

    /// See [`Session::attach`].
    fn attach(&self, peer: Arc<dyn AgentPeer>);

    /// See [`Session::end_listeners`].
    fn end_listeners(&self) {}

    /// See [`Session::cut`].
    fn cut(&self) {}

    /// See [`Session::ended`].
    fn ended(&self) -> bool {
        false
    }

    /// See [`Session::close`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

impl Backend for Broker {
    fn open<'a>(
        &'a self,
        profile: &'a ProfileName,
        principal: &'a Principal,
        agent: Agent,
    ) -> BoxFuture<'a, Result<Arc<dyn FrontSession>, RpcError>> {
        Box::pin(async move {
            let session: Arc<dyn FrontSession> = self.open_session_of(profile, principal.clone(), agent).await?;
            Ok(session)
        })
    }

    fn rejected(&self, reason: &'static str, peer: IpAddr) {
        Self::rejected(self, reason, peer);
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

    fn answer<'a>(
        &'a self,
        id: &'a str,
        answer: &'a GivenAnswer,
        by: &'a str,
    ) -> BoxFuture<'a, Result<AnswerResult, InboxError>> {
        Box::pin(async move { self.inbox().answer(id, answer, by, AnswerRoute::Person).await })
    }
}

impl FrontSession for Session {
    fn offers(&self) -> BoxFuture<'_, AdvertisedCapabilities> {
        Box::pin(Self::offers(self))
    }

    fn list<'a>(
        &'a self,
        kind: ItemKind,
        params: &'a Json,
        peer: Arc<dyn AgentPeer>,
    ) -> BoxFuture<'a, Result<ListPage, RpcError>> {
        Box::pin(Self::list_for(self, kind, params, peer))
    }

    fn listed_tools(&self) -> BoxFuture<'_, Result<Arc<[Json]>, RpcError>> {
        Box::pin(async move { Ok(Self::list(self, ItemKind::Tool).await?.items) })
    }

    fn request<'a>(&'a self, method: &'a Method, params: Json, peer: Arc<dyn AgentPeer>) -> BoxFuture<'a, Answer> {
        Box::pin(Self::request(self, method.clone(), params, peer))
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

    fn cut(&self) {
        Self::cut(self);
    }

    fn ended(&self) -> bool {
        Self::ended(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::close(self))
    }
}
