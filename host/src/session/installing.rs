//! Tells an agent that waits for a source whose package is being installed how far the installation is.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::configured::ConfiguredSession;
use crate::agent::{AgentPeer, report_progress};
use crate::name::SourceName;
use crate::protocol::Json;

/// The longest time between two messages: many agents give up a request that makes no progress for longer.
const PAUSE: Duration = Duration::from_secs(5);

impl ConfiguredSession {
    /// Reports whether a source is one of the session's.
    pub(super) fn uses(&self, source: &SourceName) -> bool {
        self.context.admitted(&self.caller.profile).any(|(upstream, _)| upstream.config.name == *source)
    }

    /// Waits for some work of a request. Meanwhile the agent is notified of each step of the installations for which
    /// the work may wait, if it listens to progress. Cancellation: as of the work.
    pub(super) fn report_installations_during<'a, T: Send + 'a>(
        &'a self,
        token: Option<Json>,
        peer: &'a dyn AgentPeer,
        is_awaited: impl Fn(&SourceName) -> bool + Send + 'a,
        work: impl Future<Output = T> + Send + 'a,
    ) -> BoxFuture<'a, T> {
        // Boxed, as the compiler limits the nesting of futures.
        match token {
            Some(token) => self.report_installations(token, peer, is_awaited, Box::pin(work)).boxed(),
            None => work.boxed(),
        }
    }

    async fn report_installations<T>(
        &self,
        token: Json,
        peer: &dyn AgentPeer,
        is_awaited: impl Fn(&SourceName) -> bool,
        mut work: BoxFuture<'_, T>,
    ) -> T {
        let mut installations = self.context.installations.watch();
        installations.mark_changed();
        let began = Instant::now();
        let mut reported = String::new();
        loop {
            let is_late = tokio::select! {
                // Packages that are already installed are not waited for.
                biased;
                done = &mut work => return done,
                changed = installations.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return work.await,
                },
                () = sleep(PAUSE), if !reported.is_empty() => true,
            };
            let steps = installations.borrow_and_update().clone();
            let steps: Vec<_> = steps
                .into_iter()
                .filter(|(source, _)| is_awaited(source))
                .map(|(source, step)| format!("source `{source}`: {step}"))
                .collect();
            let now = steps.join("; ");
            if !now.is_empty() && (is_late || now != reported) {
                let message = format!("{now} ({} s)", began.elapsed().as_secs());
                tokio::select! {
                    biased;
                    done = &mut work => return done,
                    () = report_progress(peer, &token, &message) => {}
                }
            }
            reported = now;
        }
    }
}
