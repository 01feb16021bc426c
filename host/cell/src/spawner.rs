//! The one thread that starts all processes. The kernel kills a source when the thread that started its launcher ends,
//! so this thread lives as long as the broker.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;

use portcullis_jail::{LaunchSpec, Launcher, ProbeReport, RunningLauncher, StartedCell};
use tokio::sync::oneshot;

/// The launchers that run. They belong to the thread that starts processes.
#[derive(Default)]
pub(crate) struct Launchers {
    running: Vec<(Launcher, RunningLauncher)>,
}

impl Launchers {
    /// Starts a cell. A launcher that has been killed since it last started one is started again.
    pub(crate) fn start(&mut self, launcher: &Launcher, launch: &LaunchSpec) -> io::Result<StartedCell> {
        self.with(launcher, |running| running.start(launch))
    }

    /// Returns the tiers that a launcher can build here.
    pub(crate) fn probe(&mut self, launcher: &Launcher) -> io::Result<ProbeReport> {
        self.with(launcher, |running| {
            let report = running.probe();
            if !running.has_ended() {
                return Ok(report);
            }
            // A launcher that has ended built no cell, so that each refusal says why.
            let why = report.full.map_or_else(|refusal| refusal.cause, |_| "the launcher has ended".to_owned());
            Err(io::Error::other(why))
        })
    }

    fn with<T>(
        &mut self,
        launcher: &Launcher,
        mut act: impl FnMut(&mut RunningLauncher) -> io::Result<T>,
    ) -> io::Result<T> {
        let known = self.running.iter().position(|(known, _)| known == launcher);
        let mut running = match known {
            Some(at) => self.running.swap_remove(at).1,
            None => RunningLauncher::new(launcher)?,
        };
        let mut done = act(&mut running);
        // One that has just been started would end, or not answer, again.
        if known.is_some() && done.is_err() && running.has_ended() {
            running = RunningLauncher::new(launcher)?;
            done = act(&mut running);
        }
        // After an error its connection may be in any state.
        if done.is_ok() {
            self.running.push((launcher.clone(), running));
        }
        done
    }
}

type Order = Box<dyn FnOnce(&mut Launchers) + Send>;

/// Runs this on the thread that starts processes, and returns its result. Dropping the future does not stop it.
///
/// # Errors
/// If the thread cannot be started or has ended.
pub(crate) async fn on_spawner<T: Send + 'static>(
    act: impl FnOnce(&mut Launchers) -> T + Send + 'static,
) -> io::Result<T> {
    let spawner = spawner().ok_or_else(|| io::Error::other("cannot start the thread that starts processes"))?;
    let gone = || io::Error::other("the thread that starts processes has ended");
    let (reply, done) = oneshot::channel();
    // If the caller has gone away, the unsent reply is dropped.
    let order = move |launchers: &mut Launchers| drop(reply.send(act(launchers)));
    spawner.send(Box::new(order)).map_err(|_| gone())?;
    done.await.map_err(|_| gone())
}

/// Returns the queue of the thread, or `None` if it cannot be started.
fn spawner() -> Option<&'static Sender<Order>> {
    static SPAWNER: OnceLock<Option<Sender<Order>>> = OnceLock::new();
    let start = || {
        let (orders, queue) = std::sync::mpsc::channel::<Order>();
        let run = move || {
            let mut launchers = Launchers::default();
            queue.into_iter().for_each(|order| order(&mut launchers));
        };
        std::thread::Builder::new().name("portcullis-spawner".to_owned()).spawn(run).ok()?;
        Some(orders)
    };
    SPAWNER.get_or_init(start).as_ref()
}
