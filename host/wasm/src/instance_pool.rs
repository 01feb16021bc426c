//! The instances of one plugin: a fresh one for every call. The next ones are made in advance, while no call waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_core::limits::{self, CallLimits};
use portcullis_core::sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Engine;

use super::PluginIdentity;
use super::access::EnforcedAccess;
use super::clock::EpochClock;
use super::description::PassedCalls;
use super::error::{FailureCode, PluginError, PluginFailure};
use super::guest::{GuestState, ReadyInstance, arm, guard};
use super::load::LinkedComponent;
use super::v0_1::{GuestFacts, World};

/// A loaded plugin with the instances that are ready. Clones share them.
pub(crate) struct InstancePool<W: World>(Arc<Shared<W>>);

struct Shared<W: World> {
    engine: Engine,
    clock: Arc<EpochClock>,
    linked: LinkedComponent<W>,
    slots: Arc<Semaphore>,
    /// The turns of its decisions, for a plugin that decides.
    turns: Option<Arc<Semaphore>>,
    /// The slots that must stay free for calls. Instances are made in advance only while more are free.
    reserve: usize,
    ready: Mutex<Vec<ReadyInstance<W>>>,
    refilling: AtomicBool,
}

/// A plugin that is ready to be asked.
pub(super) struct LoadedPlugin<W: World> {
    pub(super) identity: PluginIdentity,
    pub(super) pool: InstancePool<W>,
    /// The calls about which it is not asked.
    pub(super) passes: PassedCalls,
}

/// The slots for plugins of one kind.
#[derive(Clone)]
pub(crate) struct InstanceSlots {
    pub free: Arc<Semaphore>,
    /// The slots that stay free for calls, however many plugins there are.
    reserve: usize,
    /// The instances of one plugin that run at once, if they take turns.
    at_once: Option<usize>,
}

impl InstanceSlots {
    pub(crate) fn new(slots: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(slots as usize)), reserve: slots as usize / 2, at_once: None }
    }

    /// Returns slots for plugins that decide. A decision only computes, so running more of one plugin at once than
    /// there are processors would only take memory: 16 MiB each. Each plugin has its own turns, so that a slow one
    /// delays no other.
    pub(crate) fn of_deciders(slots: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { at_once: Some(processors.max(2)), ..Self::new(slots) }
    }
}

/// The longest time that a decision waits for its turn. Those before it end by their deadlines.
const TURN_WAIT: Duration = Duration::from_secs(30);

/// The reason why an instance could not be made.
pub(crate) enum InstantiateError {
    /// `configure` refused the settings; the plugin's own text.
    Refused(String),
    Failed(PluginFailure),
}

impl InstantiateError {
    /// Returns the error with which loading this plugin fails.
    pub(crate) fn of(self, plugin: &str) -> PluginError {
        let plugin = plugin.to_owned();
        match self {
            Self::Refused(reason) => PluginError::Settings { plugin, reason },
            Self::Failed(failure) => PluginError::start(plugin, failure),
        }
    }
}

impl<W: World> Clone for InstancePool<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: World> InstancePool<W> {
    /// Makes the first instance, which proves that the plugin starts and accepts its settings.
    pub(crate) async fn start(
        engine: Engine,
        clock: Arc<EpochClock>,
        linked: LinkedComponent<W>,
        slots: InstanceSlots,
    ) -> Result<Self, PluginError> {
        let InstanceSlots { free: slots, reserve, at_once } = slots;
        let turns = at_once.map(|at_once| Arc::new(Semaphore::new(at_once)));
        let (ready, refilling) = (Mutex::default(), AtomicBool::new(false));
        let shared = Shared { engine, clock, linked, slots, turns, reserve, ready, refilling };
        match shared.fresh().await {
            Ok(first) if shared.has_room() => shared.put(first),
            Ok(_) => {}
            Err(unready) => return Err(unready.of(&shared.linked.plugin)),
        }
        Ok(Self(Arc::new(shared)))
    }

    /// Returns how many slots one instance takes.
    pub(crate) fn weight(&self) -> u32 {
        self.0.linked.weight
    }

    /// Reports whether the plugin can ask for the information flow of a call.
    pub(crate) fn reads_flow(&self) -> bool {
        self.0.linked.reads_flow
    }

    /// Returns the confinement of the component of a source; `None` for other plugins.
    pub(crate) fn confinement(&self) -> Option<&EnforcedAccess> {
        self.0.linked.confinement.as_deref()
    }

    /// Returns a configured instance that has served no call yet. Cancellation safe.
    pub(crate) async fn take(&self) -> Result<ReadyInstance<W>, PluginFailure> {
        let turn = match &self.0.turns {
            Some(turns) => Some(turn(turns).await?),
            None => None,
        };
        let (ready, is_empty) = {
            let mut ready = self.0.lock();
            (ready.pop(), ready.is_empty())
        };
        // All that were ready are made at once: making each one as soon as one is taken would start as many tasks as there
        // are decisions.
        if is_empty {
            self.refill();
        }
        let live = match ready {
            Some(live) => live,
            None => self.0.fresh().await.map_err(|unready| match unready {
                InstantiateError::Failed(failure) => failure,
                // It accepted them when it was loaded, and a decision must not depend on anything else.
                InstantiateError::Refused(text) => {
                    PluginFailure::new(FailureCode::Error, format!("it now refuses its settings: {text}"))
                }
            })?,
        };
        Ok(live.holding(turn))
    }

    /// Makes the next instances in the background. This takes no slot that a call may need, and stops at the first
    /// failure: the next call fails in the same way and reports it.
    fn refill(&self) {
        if self.0.refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        let done = Refilling(Arc::downgrade(&self.0));
        tokio::spawn(async move {
            while let Some(shared) = done.0.upgrade() {
                if shared.lock().len() >= limits::READY_INSTANCES || !shared.has_room() {
                    break;
                }
                let Ok(slot) = shared.slots.clone().try_acquire_many_owned(shared.linked.weight) else { break };
                let Ok(live) = shared.instance(slot).await else { break };
                shared.put(live);
            }
        });
    }
}

async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, PluginFailure> {
    let turn = tokio::time::timeout(TURN_WAIT, Arc::clone(turns).acquire_owned()).await;
    turn.ok().and_then(Result::ok).ok_or_else(|| {
        let seconds = TURN_WAIT.as_secs();
        PluginFailure::new(FailureCode::Busy, format!("its other decisions took all turns for {seconds} s"))
    })
}

/// A guard that clears the flag when refilling ends, even if its task is dropped with the runtime.
struct Refilling<W: World>(std::sync::Weak<Shared<W>>);

impl<W: World> Drop for Refilling<W> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.refilling.store(false, Ordering::Release);
        }
    }
}

impl<W: World> Shared<W> {
    async fn fresh(&self) -> Result<ReadyInstance<W>, InstantiateError> {
        let busy = |_| PluginFailure::new(FailureCode::Busy, "every slot for plugin instances is in use");
        let slot = self.slots.clone().acquire_many_owned(self.linked.weight);
        let slot =
            tokio::time::timeout(limits::SLOT_WAIT, slot).await.map_err(|_| ()).and_then(|slot| slot.map_err(|_| ()));
        self.instance(slot.map_err(busy).map_err(InstantiateError::Failed)?).await
    }

    async fn instance(&self, slot: OwnedSemaphorePermit) -> Result<ReadyInstance<W>, InstantiateError> {
        let facts = GuestFacts { plugin: self.linked.plugin.clone(), ..GuestFacts::default() };
        let mut store = match &self.linked.confinement {
            None => GuestState::store(&self.engine, &self.clock, facts),
            Some(confinement) => {
                let share = confinement.share().await.map_err(InstantiateError::Failed)?;
                let store = GuestState::confined(&self.engine, &self.clock, facts, confinement);
                let mut store = store.map_err(InstantiateError::Failed)?;
                store.data_mut().descriptors = share;
                store
            }
        };
        let armed = arm(&mut store, CallLimits::START);
        let world = async {
            let (world, _) = W::instantiate(&self.linked.pre, &mut store).await?;
            let Some(settings) = &self.linked.settings else { return Ok(Ok(world)) };
            let configured = world.configure(&mut store, settings).await?;
            Ok(configured.map(|()| world))
        };
        match guard(armed, world).await {
            Ok(Ok(world)) => Ok(ReadyInstance::new(world, store, slot)),
            Ok(Err(reason)) => Err(InstantiateError::Refused(reason)),
            Err(failure) => Err(InstantiateError::Failed(failure)),
        }
    }

    /// Reports whether an instance may be made in advance. Where there are a thousand sources, most have none ready.
    fn has_room(&self) -> bool {
        let shares = self.linked.confinement.as_ref().is_none_or(|confinement| confinement.has_room());
        shares && self.slots.available_permits() > self.reserve
    }

    fn put(&self, live: ReadyInstance<W>) {
        self.lock().push(live);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ReadyInstance<W>>> {
        self.ready.lock()
    }
}
