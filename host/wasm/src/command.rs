//! A component that is a program and communicates over its standard streams: an MCP server built for `wasm32-wasip2`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_core::limits::{self, CallLimits};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use wasmtime::Store;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::cli::{AsyncStdinStream, AsyncStdoutStream};
use wasmtime_wasi::p2::bindings::{Command as CommandBindings, CommandPre};

use super::access::EnforcedAccess;
use super::error::{FailureCode, PluginError, PluginFailure};
use super::guest::{GuestState, arm, failure, guard, out_of_time};
use super::load::{self, AllowedImports, ComponentInterface, PluginBytes};
use super::meter::{Meter, OutOfTime};
use super::v0_1::GuestFacts;
use super::{Host, PluginIdentity};

/// A loaded program that is not running. Clones share it.
#[derive(Clone)]
pub struct CommandComponent(Arc<LoadedCode>);

struct LoadedCode {
    host: Arc<Host>,
    identity: PluginIdentity,
    pre: CommandPre<GuestState>,
    weight: u32,
    confinement: Arc<EnforcedAccess>,
}

/// A running program. Dropping it stops the program.
pub struct RunningCommand {
    ended: watch::Receiver<Option<(Instant, String)>>,
    stop: CancellationToken,
    meter: Meter,
    /// True if the program was sent a message and has sent none since.
    owes_reply: AtomicBool,
}

/// The host's ends of the program's standard streams.
pub struct CommandStreams<I = DuplexStream, O = DuplexStream> {
    /// Standard input.
    pub input: I,
    /// Standard output.
    pub output: O,
    /// Standard error.
    pub error: O,
}

impl CommandComponent {
    /// Compiles and links the program, without running it.
    pub(super) fn load(
        host: &Arc<Host>,
        wasm: &PluginBytes,
        manifest: &ComponentInterface,
        allowed: &AllowedImports,
        confinement: Arc<EnforcedAccess>,
        identity: PluginIdentity,
    ) -> Result<Self, PluginError> {
        let (pre, weight) = load::foreign(host, wasm, manifest, allowed, CommandPre::new)?;
        Ok(Self(Arc::new(LoadedCode { host: Arc::clone(host), identity, pre, weight, confinement })))
    }

    /// Returns which component it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        &self.0.identity
    }

    /// Starts the program with these variables. Cancellation safe: dropping the future stops the started program.
    ///
    /// # Errors
    /// [`PluginFailure`] if the component itself fails, or no instance or slot is free.
    pub async fn start(&self, env: &[(String, String)]) -> Result<(RunningCommand, CommandStreams), PluginFailure> {
        let loaded = &self.0;
        let permit = loaded.confinement.instance_permit(loaded.weight).await?;
        let slot = Arc::clone(&loaded.host.commands).acquire_many_owned(loaded.weight);
        let Ok(Ok(slot)) = timeout(limits::SLOT_WAIT, slot).await else {
            return Err(PluginFailure::new(FailureCode::Busy, "every slot for components that run is in use"));
        };
        let (input, stdin) = duplex(limits::PIPE_BYTES);
        let (stdout, output) = duplex(limits::PIPE_BYTES);
        let (stderr, error) = duplex(limits::PIPE_BYTES);
        let (mut store, program) =
            self.instance(env, CommandStreams { input: stdin, output: stdout, error: stderr }).await?;
        let limits = store.data().tool;
        let meter = Meter::new(limits.deadline, store.data().share.unwrap_or(1.0));
        let (tell, ended) = watch::channel(None);
        let stop = CancellationToken::new();
        let (measured, stopped) = (meter.clone(), stop.clone());
        store.set_epoch_deadline(1);
        tokio::spawn(async move {
            let clock = Arc::clone(&store.data().clock);
            let run = measured.run_by(&clock, program.wasi_cli_run().call_run(&mut store));
            let exit_description = tokio::select! {
                biased;
                () = stopped.cancelled() => "was ended".to_owned(),
                result = run => exit_description(limits, result),
            };
            // The memory is released before anyone learns that the program ended.
            drop(store);
            drop::<[OwnedSemaphorePermit; 2]>([slot, permit]);
            let _ = tell.send(Some((Instant::now(), exit_description)));
        });
        Ok((
            RunningCommand { ended, stop, meter, owes_reply: AtomicBool::new(false) },
            CommandStreams { input, output, error },
        ))
    }

    async fn instance<I, O>(
        &self,
        env: &[(String, String)],
        streams: CommandStreams<I, O>,
    ) -> Result<(Store<GuestState>, CommandBindings), PluginFailure>
    where
        I: AsyncRead + Send + Sync + 'static,
        O: AsyncWrite + Send + Sync + 'static,
    {
        let LoadedCode { host, identity, pre, confinement, .. } = &*self.0;
        let facts = GuestFacts { plugin: identity.name.as_str().into(), ..GuestFacts::default() };
        let CommandStreams { input, output, error } = streams;
        let share = confinement.share().await?;
        let mut store = GuestState::confined_with(&host.engine, &host.clock, facts, confinement, |builder| {
            builder
                .envs(env)
                .stdin(AsyncStdinStream::new(input))
                .stdout(AsyncStdoutStream::new(limits::PIPE_BYTES, output))
                .stderr(AsyncStdoutStream::new(limits::PIPE_BYTES, error));
        })?;
        store.data_mut().descriptors = share;
        let armed = arm(&mut store, CallLimits::START);
        let program = guard(armed, pre.instantiate_async(&mut store)).await?;
        Ok((store, program))
    }
}

impl fmt::Debug for CommandComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandComponent").field("identity", self.identity()).finish_non_exhaustive()
    }
}

impl RunningCommand {
    /// Notes that a message was sent to the program. A program that owed no message gets its whole processor time
    /// again; a busy one gets nothing extra, so that further calls do not keep a hanging program alive.
    pub fn message_sent(&self) {
        if !self.owes_reply.swap(true, Ordering::Relaxed) {
            self.meter.reset();
        }
    }

    /// Notes that the program sent a message: its processor time starts again.
    pub fn message_received(&self) {
        self.owes_reply.store(false, Ordering::Relaxed);
        self.meter.reset();
    }

    /// Stops the program at once.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the program has ended and returns when that was. Cancellation safe.
    pub async fn wait(&self) -> Instant {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.as_ref().map(|(at, _)| *at));
        // The task reports the end before it finishes, unless the runtime shuts down first.
        end.unwrap_or_else(Instant::now)
    }

    /// Returns how the program ended, or `None` while it runs.
    pub fn exit_description(&self) -> Option<String> {
        self.ended.borrow().as_ref().map(|(_, exit_description)| exit_description.clone())
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Describes for people how a program ended.
fn exit_description(limits: CallLimits, result: Result<wasmtime::Result<Result<(), ()>>, OutOfTime>) -> String {
    match result {
        Err(OutOfTime) => format!("was stopped before it sent a message: {}", out_of_time(limits.deadline)),
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
    use portcullis_core::limits::TICK;

    use super::*;
    use crate::meter::tests::work;

    #[tokio::test]
    async fn a_command_gets_new_processor_time_with_each_message_but_none_while_it_is_busy() {
        let (_tell, ended) = watch::channel(None);
        let meter = Meter::new(TICK * 200, 1.0);
        let running =
            RunningCommand { ended, stop: CancellationToken::new(), meter, owes_reply: AtomicBool::new(false) };
        let works = async || running.meter.run(work(110)).await;
        // Each of these runs needs more than was left of the budget before the reset.
        for _ in 0..3 {
            running.message_sent();
            assert_eq!(works().await, Ok(()), "asked");
            running.message_received();
            assert_eq!(works().await, Ok(()), "after a word of its own");
        }
        running.message_sent();
        assert_eq!(works().await, Ok(()));
        running.message_sent();
        assert_eq!(works().await, Err(OutOfTime), "it still owes a word");
    }
}
