//! An agent of the eras that begin with `initialize` (2024-11-05 to 2025-11-25).

use std::time::Duration;

use super::calls::Calls;
use super::client::Client;
use super::contact::{Asks, Line, Out};
use super::desk::Desk;
use super::{Era, INSTRUCTIONS, Step, server_info};
use crate::front::backend::Backend;
use crate::message::{Json, Message, Notification, Request, Response, RpcError};
use crate::name::ProfileName;

/// An agent that has initialised.
pub(crate) struct Legacy {
    desk: Desk,
    client: Client,
    calls: Calls,
    asks: Asks,
}

impl Legacy {
    /// Opens a session for an `initialize` request; gives the result to answer with.
    pub(crate) async fn open(
        backend: &dyn Backend,
        profile: &ProfileName,
        principal: &str,
        params: Option<&Json>,
    ) -> Result<(Self, Json), RpcError> {
        let (client, version) = Client::from_initialize(params)?;
        let run = backend.open(profile, principal, &client.name).await?;
        let result = serde_json::json!({
            "protocolVersion": version,
            "capabilities": { "tools": { "listChanged": false } },
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        });
        let agent = Self { desk: Desk::new(run), client, calls: Calls::default(), asks: Asks::default() };
        Ok((agent, Json::of(&result)))
    }

    /// Takes a message of the agent. What belongs to the request goes to `out`.
    pub(crate) fn accept(&self, message: Message, out: &Out) -> Step {
        match message {
            Message::Request(request) => self.request(request, out),
            Message::Notification(notification) => {
                self.notification(&notification);
                Step::Silence
            }
            Message::Response(response) => {
                self.asks.settle(response);
                Step::Silence
            }
        }
    }

    fn request(&self, request: Request, out: &Out) -> Step {
        match request.method.as_str() {
            "ping" => Step::Answer(Response::result(request.id, Json::empty_object())),
            "initialize" => {
                let error = RpcError::new(RpcError::INVALID_REQUEST, "this session is initialised already");
                Step::Answer(Response::error(Some(request.id), &error))
            }
            _ => {
                let line = Line::new(out.clone(), self.client.elicitation, self.asks.clone());
                self.desk.serve(Era::Legacy, request, line, &self.calls)
            }
        }
    }

    fn notification(&self, notification: &Notification) {
        if notification.method == "notifications/cancelled" {
            self.calls.cancel(notification.params.as_ref());
        }
    }

    /// The agent answers no question any more.
    pub(crate) fn hang_up(&self) {
        self.asks.close();
    }

    /// Cancels the open calls.
    pub(crate) fn cancel_all(&self) {
        self.calls.cancel_all();
    }

    /// Waits for open calls, but no longer than `patience`, then ends the session.
    pub(crate) async fn close(&self, patience: Duration) {
        self.hang_up();
        self.desk.close(patience).await;
    }
}
