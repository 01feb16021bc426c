//! Opens sessions, each with a record of its beginning, and none once the broker shuts down.

use std::sync::Arc;

use serde_json::json;

use super::Broker;
use crate::agent::Agent;
use crate::call::{Caller, SessionId};
use crate::context::Context;
use crate::ledger::{Event, EventKind};
use crate::name::ProfileName;
use crate::principal::Principal;
use crate::protocol::RpcError;
use crate::session::Session;

/// The message for an opener whose session the ledger could not record.
const UNRECORDED: &str = "the session cannot be recorded; the operator's log has the cause";

impl Broker {
    /// Opens a session for a program that makes calls itself, and records it. Opens no source. `client` is the name of
    /// the program in the record.
    ///
    /// Cancellation: a session whose beginning was recorded ends as abandoned.
    ///
    /// # Errors
    /// [`RpcError::INVALID_REQUEST`] if the profile is unknown; [`RpcError::INTERNAL`] if the ledger cannot record the
    /// session, or the broker has shut down.
    pub async fn open_session(
        &self,
        profile: &ProfileName,
        principal: &Principal,
        client: &str,
    ) -> Result<Arc<Session>, RpcError> {
        self.open_session_of(profile, principal.clone(), Agent::named(client)).await
    }

    /// Opens a session for an agent that a front has identified, and records it. Opens no source.
    ///
    /// # Errors
    /// [`RpcError`] if the profile is unknown, the ledger cannot record the session, or the broker has shut down.
    #[doc(hidden)]
    pub async fn open_session_of(
        &self,
        profile: &ProfileName,
        principal: Principal,
        agent: Agent,
    ) -> Result<Arc<Session>, RpcError> {
        // Before the look whether it shuts down, as the shutdown waits for it.
        let opening = self.inner.opening.token();
        self.refuse_after_shutdown()?;
        let context = self.inner.context();
        let Some(known) = context.profiles.get(profile) else {
            let known: Vec<_> = context.profiles.keys().map(ProfileName::as_str).collect();
            let text = format!("no profile `{profile}` is configured; the configuration has {}", known.join(", "));
            return Err(RpcError::new(RpcError::INVALID_REQUEST, text));
        };
        let (trust, session, client) = (known.config.trust, SessionId::new(), agent.name.clone());
        let body =
            json!({ "principal": principal.as_str(), "profile": profile, "client": &*client, "trust": trust.as_str() });
        let caller = Caller { principal, profile: profile.clone(), trust, session, client };
        let event = Event::new(EventKind::RunStarted, body).in_run(&caller.session);
        // Made before the record is written: if the opener goes away meanwhile, dropping the session ends its run.
        let continuations = self.inner.continuations.of(&caller, &agent);
        let session = Session::new(caller, agent, known.config.clone(), Arc::clone(&context), continuations);
        let broker = self.clone();
        // A separate task: an opener that does not poll must not hold up the shutdown.
        let opened = tokio::spawn(async move {
            let _opening = opening;
            broker.begin_run(session, &context, event).await
        });
        opened.await.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, UNRECORDED)))
    }

    /// Records the beginning of a session, and adds the session to those that are open.
    async fn begin_run(
        &self,
        session: Arc<Session>,
        context: &Context,
        started: Event,
    ) -> Result<Arc<Session>, RpcError> {
        context.ledger.append(started).await.map_err(|error| {
            session.forget();
            tracing::debug!(%error, "a session cannot be recorded and is therefore not opened");
            self.refuse_after_shutdown().err().unwrap_or_else(|| RpcError::new(RpcError::INTERNAL, UNRECORDED))
        })?;
        if let Err(refused) = self.refuse_after_shutdown() {
            session.interrupt().await;
            return Err(refused);
        }
        {
            let mut sessions = self.inner.sessions.lock();
            sessions.retain(|_, session| session.strong_count() > 0);
            sessions.insert(session.caller().session.clone(), Arc::downgrade(&session));
        }
        // The configuration may have been replaced before the session was among those that are notified.
        session.reconfigure(|| self.inner.context());
        Ok(session)
    }

    fn refuse_after_shutdown(&self) -> Result<(), RpcError> {
        let refused = || RpcError::new(RpcError::INTERNAL, "the broker has shut down, and opens no session any more");
        if self.has_shut_down() { Err(refused()) } else { Ok(()) }
    }

    /// Reports whether the broker shuts down, or has done so.
    pub(super) fn has_shut_down(&self) -> bool {
        *self.inner.stopping.borrow()
    }
}
