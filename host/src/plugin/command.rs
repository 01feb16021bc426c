//! A component that is a program: it runs, and speaks over its standard streams. An MCP server built for `wasm32-wasip2`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use wasmtime::Store;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::cli::{AsyncStdinStream, AsyncStdoutStream};
use wasmtime_wasi::p2::bindings::{Command as Program, CommandPre};

use super::access::Confinement;
use super::error::{Failure, FailureCode, PluginError};
use super::guest::{State, arm, failure, guard, out_of_time};
use super::load::{self, Allowed, Manifest, Wasm};
use super::meter::{Meter, OutOfTime};
use super::v0_1::Facts;
use super::{Host, Identity};
use crate::limits::{self, Limits};

/// A loaded program, not running. Clones share it.
#[derive(Clone)]
pub struct Command(Arc<Loaded>);

struct Loaded {
    host: Arc<Host>,
    identity: Identity,
    pre: CommandPre<State>,
    weight: u32,
    confinement: Arc<Confinement>,
}

/// A program that runs. Dropping it ends it.
pub(crate) struct Running {
    ended: watch::Receiver<Option<(Instant, String)>>,
    stop: CancellationToken,
    meter: Meter,
    /// It was told something, and has said nothing since.
    owes: AtomicBool,
}

/// The host's ends of its standard streams.
pub(crate) struct Streams<I = DuplexStream, O = DuplexStream> {
    pub(crate) input: I,
    pub(crate) output: O,
    pub(crate) error: O,
}

impl Command {
    /// Compiles and links. Runs nothing.
    pub(super) fn load(
        host: &Arc<Host>,
        wasm: &Wasm,
        manifest: &Manifest,
        allowed: &Allowed,
        confinement: Arc<Confinement>,
        identity: Identity,
    ) -> Result<Self, PluginError> {
        let (pre, weight) = load::foreign(host, wasm, manifest, allowed, CommandPre::new)?;
        Ok(Self(Arc::new(Loaded { host: Arc::clone(host), identity, pre, weight, confinement })))
    }

    /// Which component it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Starts it. Cancellation safe: dropping the future ends what was started.
    ///
    /// # Errors
    /// A failure of the component itself, or no room for it.
    pub(crate) async fn start(&self) -> Result<(Running, Streams), Failure> {
        let loaded = &self.0;
        let turn = loaded.confinement.turn().await?;
        let slot = Arc::clone(&loaded.host.commands).acquire_many_owned(loaded.weight);
        let Ok(Ok(slot)) = timeout(limits::SLOT_WAIT, slot).await else {
            return Err(Failure::new(FailureCode::Busy, "every slot for components that run is in use"));
        };
        let (input, stdin) = duplex(limits::PIPE_BYTES);
        let (stdout, output) = duplex(limits::PIPE_BYTES);
        let (stderr, error) = duplex(limits::PIPE_BYTES);
        let (mut store, program) = self.instance(Streams { input: stdin, output: stdout, error: stderr }).await?;
        let limits = store.data().tool;
        let meter = Meter::new(limits.deadline, store.data().share.unwrap_or(1.0));
        let (tell, ended) = watch::channel(None);
        let stop = CancellationToken::new();
        let (measured, stopped) = (meter.clone(), stop.clone());
        store.set_epoch_deadline(1);
        tokio::spawn(async move {
            let clock = Arc::clone(&store.data().clock);
            let run = measured.run_by(&clock, program.wasi_cli_run().call_run(&mut store));
            let fate = tokio::select! {
                biased;
                () = stopped.cancelled() => "was ended".to_owned(),
                result = run => fate(limits, result),
            };
            // Its memory is given back before anybody hears of the end.
            drop(store);
            drop::<[OwnedSemaphorePermit; 2]>([slot, turn]);
            let _ = tell.send(Some((Instant::now(), fate)));
        });
        Ok((Running { ended, stop, meter, owes: AtomicBool::new(false) }, Streams { input, output, error }))
    }

    async fn instance<I, O>(&self, streams: Streams<I, O>) -> Result<(Store<State>, Program), Failure>
    where
        I: AsyncRead + Send + Sync + 'static,
        O: AsyncWrite + Send + Sync + 'static,
    {
        let Loaded { host, identity, pre, confinement, .. } = &*self.0;
        let facts = Facts { plugin: identity.name.as_str().into(), ..Facts::default() };
        let Streams { input, output, error } = streams;
        let share = confinement.share().await?;
        let mut store = State::confined_with(&host.engine, &host.clock, facts, confinement, |builder| {
            builder
                .stdin(AsyncStdinStream::new(input))
                .stdout(AsyncStdoutStream::new(limits::PIPE_BYTES, output))
                .stderr(AsyncStdoutStream::new(limits::PIPE_BYTES, error));
        })?;
        store.data_mut().descriptors = share;
        let armed = arm(&mut store, Limits::START);
        let program = guard(armed, pre.instantiate_async(&mut store)).await?;
        Ok((store, program))
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("identity", self.identity()).finish_non_exhaustive()
    }
}

impl Running {
    /// It is told something. If it owes no word it has its whole processor time for that; one that is busy gets none on top, so
    /// that more calls do not keep alive what hangs.
    pub(crate) fn told(&self) {
        if !self.owes.swap(true, Ordering::Relaxed) {
            self.meter.reset();
        }
    }

    /// It has said something: its processor time begins anew.
    pub(crate) fn heard(&self) {
        self.owes.store(false, Ordering::Relaxed);
        self.meter.reset();
    }

    /// Ends it at once.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end, and says when it was. Cancellation safe.
    pub(crate) async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.as_ref().map(|(at, _)| *at));
        // Its task tells before it goes, unless the runtime goes first.
        end.unwrap_or_else(Instant::now)
    }

    /// How it ended, if it has.
    pub(crate) fn fate(&self) -> Option<String> {
        self.ended.borrow().as_ref().map(|(_, fate)| fate.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a program ended, for people.
fn fate(limits: Limits, result: Result<wasmtime::Result<Result<(), ()>>, OutOfTime>) -> String {
    match result {
        Err(OutOfTime) => format!("was ended without a word: {}", out_of_time(limits.deadline)),
        Ok(Ok(Ok(()))) => "exited with status 0".to_owned(),
        Ok(Ok(Err(()))) => "exited with status 1".to_owned(),
        Ok(Err(error)) => match error.downcast_ref::<I32Exit>() {
            Some(I32Exit(status)) => format!("exited with status {status}"),
            None => format!("failed: {}", failure(limits, &error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TICK;
    use crate::plugin::meter::tests::work;

    #[tokio::test]
    async fn a_command_has_its_time_from_message_to_message_and_none_on_top() {
        let (_tell, ended) = watch::channel(None);
        let meter = Meter::new(TICK * 50, 1.0);
        let running = Running { ended, stop: CancellationToken::new(), meter, owes: AtomicBool::new(false) };
        let works = async || running.meter.run(work(30)).await;
        // Each of these is more than the budget has left without the one before it.
        for _ in 0..3 {
            running.told();
            assert_eq!(works().await, Ok(()), "asked");
            running.heard();
            assert_eq!(works().await, Ok(()), "after a word of its own");
        }
        running.told();
        assert_eq!(works().await, Ok(()));
        running.told();
        assert_eq!(works().await, Err(OutOfTime), "it still owes a word");
    }
}
