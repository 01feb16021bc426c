//! An agent of the legacy era, which begins with `initialize` (2024-11-05 to 2025-11-25).

use std::sync::Arc;
use std::time::Duration;

use super::agent_channel::{AgentChannel, OpenQuestions};
use super::client::ClientInfo;
use super::open_calls::OpenCalls;
use super::session_handle::SessionHandle;
use super::{NextStep, instructions, method_not_found, server_info};
use crate::agent::{NoAgent, TransportKind};
use crate::front::backend::Backend;
use crate::front::outgoing::MessageSender;
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::{Era, Id, Json, Message, Method, Notification, Request, Response, RpcError, revision};

/// The conversation with an agent of the legacy era, from its `initialize` on.
pub(crate) struct LegacyConversation {
    handle: SessionHandle,
    version: &'static str,
    client: ClientInfo,
    calls: OpenCalls,
    asks: OpenQuestions,
}

impl LegacyConversation {
    /// Opens a session for an `initialize` request. Returns the agent and the result to answer with.
    ///
    /// # Errors
    /// If the request has no version, or the session cannot be opened.
    pub(crate) async fn open(
        backend: &dyn Backend,
        profile: &ProfileName,
        principal: &Principal,
        transport: TransportKind,
        params: Option<&Json>,
    ) -> Result<(Self, Json), RpcError> {
        let (client, version) = ClientInfo::from_initialize(params, transport)?;
        let handle = SessionHandle::new(backend.open(profile, principal, client.agent.clone()).await?);
        let offers = handle.offers().await;
        let result = serde_json::json!({
            "protocolVersion": version,
            "capabilities": offers.capabilities,
            "serverInfo": server_info(),
            "instructions": instructions(&offers),
        });
        let agent = Self { handle, version, client, calls: OpenCalls::default(), asks: OpenQuestions::default() };
        Ok((agent, Json::of(&result)))
    }

    /// Handles a message from the agent. Messages that belong to a request go to `out`.
    pub(crate) fn accept(&self, message: Message, out: &MessageSender) -> NextStep {
        match message {
            Message::Request(request) => self.request(request, out),
            Message::Notification(notification) => {
                self.notification(&notification);
                NextStep::Silence
            }
            Message::Response(response) => {
                self.asks.deliver_response(response);
                NextStep::Silence
            }
        }
    }

    fn request(&self, request: Request, out: &MessageSender) -> NextStep {
        match &request.method {
            Method::Ping => NextStep::Answer(Response::result(request.id, Json::empty_object())),
            // A legacy agent cannot use a method of the modern era.
            method if method.is_modern_only() => NextStep::Answer(method_not_found(request)),
            Method::Initialize => {
                let error = RpcError::new(RpcError::INVALID_REQUEST, "this session is initialised already");
                NextStep::Answer(Response::error(Some(request.id), &error))
            }
            _ => {
                let channel = self.channel(out.clone(), Some(request.id.clone()));
                self.handle.serve(Era::Legacy, request, channel, &self.calls)
            }
        }
    }

    fn notification(&self, notification: &Notification) {
        match &notification.method {
            Method::NotificationsCancelled => self.calls.cancel(notification.params.as_ref()),
            // Not passed on: the broker itself sends this notification on each connection to a source.
            Method::NotificationsInitialized => {}
            _ => self.handle.notified(notification),
        }
    }

    /// Reports whether the agent accepts events that have an id and no data.
    pub(crate) fn accepts_empty_events(&self) -> bool {
        revision::has_empty_events(self.version)
    }

    /// Sends what belongs to no call to `out` from now on.
    pub(crate) fn attach(&self, out: MessageSender) {
        self.handle.attach(Arc::new(self.channel(out, None)));
    }

    /// Drops what belongs to no call from now on.
    pub(crate) fn detach(&self) {
        self.handle.attach(Arc::new(NoAgent));
    }

    fn channel(&self, out: MessageSender, id: Option<Id>) -> AgentChannel {
        AgentChannel::new(out, &self.client, self.asks.clone(), id)
    }

    /// Fails the open questions to the agent and all later ones, because it will send no more answers.
    pub(crate) fn input_ended(&self) {
        self.asks.close();
    }

    /// Cancels the open calls.
    pub(crate) fn cancel_all(&self) {
        self.calls.cancel_all();
    }

    /// Reports whether the run of the session has ended, well or not.
    pub(crate) fn ended(&self) -> bool {
        self.handle.ended()
    }

    /// Answers the open calls with an error that says that they were interrupted.
    pub(crate) fn interrupt(&self) {
        self.calls.interrupt();
    }

    /// Waits for open calls, but no longer than `timeout`, then ends the session.
    pub(crate) async fn close(&self, timeout: Duration) {
        self.input_ended();
        self.handle.close(timeout).await;
    }
}
