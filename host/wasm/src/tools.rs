//! A component of the `tools` world: a source of tools, and of resources if it offers them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use portcullis_core::call::{Caller, SessionId};
use portcullis_core::limits::{SESSION_WAIT, SOURCE_INSTANCES, TOOL_SLOTS};
use portcullis_core::name::ProfileName;
use portcullis_core::protocol::Json;
use portcullis_core::sync::{Mutex, MutexGuard};
use tokio::sync::OwnedSemaphorePermit;

use super::PluginIdentity;
use super::error::{FailureCode, PluginError, PluginFailure};
use super::guest::ReadyInstance;
use super::instance_pool::InstancePool;
use super::v0_1::{ToolSession, ToolsWorld, array, object};

mod kept_sessions;

pub(crate) use kept_sessions::KeptSessions;

/// A loaded component of tools. Clones share its sessions.
#[derive(Clone)]
pub struct ToolsComponent {
    identity: Arc<PluginIdentity>,
    instance_pool: InstancePool<ToolsWorld>,
    keeps_state: bool,
    offers_resources: bool,
    sessions: Arc<Mutex<Sessions>>,
    /// The sessions of all components.
    kept: Arc<KeptSessions>,
}

/// The reason why a call failed before it produced a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolFailure {
    /// There is no tool of that name.
    UnknownTool,
    /// The arguments do not fit; the component's own text.
    InvalidArguments(String),
    /// Any other failure of the tool; the component's own text.
    Failed(String),
    /// The component itself failed: it trapped, exceeded a limit or broke the contract.
    Component(PluginFailure),
}

impl From<PluginFailure> for ToolFailure {
    fn from(failure: PluginFailure) -> Self {
        Self::Component(failure)
    }
}

/// The sessions that are kept, and a counter that orders their uses.
#[derive(Default)]
struct Sessions {
    live: HashMap<SessionId, Session>,
    uses: u64,
}

struct Session {
    instance: SessionInstance,
    used: u64,
}

/// An instance with the session that is open in it.
type OpenSession = (ReadyInstance<ToolsWorld>, ToolSession);

/// The instance of one session; empty before its first call, and after one that did not open it, trapped, exceeded a
/// limit or was cancelled.
type SessionInstance = Arc<tokio::sync::Mutex<Option<OpenSession>>>;

impl ToolsComponent {
    pub(super) async fn start(
        identity: PluginIdentity,
        instance_pool: InstancePool<ToolsWorld>,
        offers_resources: bool,
        kept: Arc<KeptSessions>,
    ) -> Result<Self, PluginError> {
        let keeps_state = async { instance_pool.take().await?.keeps_state().await }.await;
        let keeps_state = keeps_state.map_err(|failure| PluginError::start(identity.name.clone(), failure))?;
        Ok(Self {
            identity: Arc::new(identity),
            instance_pool,
            keeps_state,
            offers_resources,
            sessions: Arc::default(),
            kept,
        })
    }

    /// Returns which component it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        &self.identity
    }

    /// Reports whether all calls of a session reach the same instance. Otherwise each call gets a fresh one.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        self.keeps_state
    }

    /// Reports whether the component can neither change anything nor send anything out.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.instance_pool.confinement().is_none_or(|confinement| confinement.access.is_harmless())
    }

    /// Returns the tools, as MCP `Tool` objects. Cancellation safe.
    ///
    /// # Errors
    /// [`FailureCode::Error`] with the component's own text; [`FailureCode::Output`] if they are not an array of
    /// objects; otherwise as for any call.
    pub async fn definitions(&self) -> Result<Vec<Json>, PluginFailure> {
        let _permit = self.instance_permit().await?;
        array("definitions", component_error(self.instance_pool.take().await?.definitions().await?)?)
    }

    /// Reports whether the component offers resources.
    #[must_use]
    pub fn offers_resources(&self) -> bool {
        self.offers_resources
    }

    /// Returns the resources for a profile, as MCP `Resource` objects; empty if the component offers
    /// none. Cancellation safe.
    ///
    /// # Errors
    /// The errors of [`ToolsComponent::definitions`].
    pub async fn resources(&self, profile: Option<&ProfileName>) -> Result<Vec<Json>, PluginFailure> {
        let _permit = self.instance_permit().await?;
        match self.take(profile).await?.list_resources().await? {
            None => Ok(Vec::new()),
            Some(listed) => array("resources", component_error(listed)?),
        }
    }

    /// Returns the contents of a resource, as an MCP `ReadResourceResult`; `None` if there is none of that URI.
    /// Cancellation safe.
    ///
    /// # Errors
    /// The errors of [`ToolsComponent::resources`].
    pub async fn read(&self, caller: &Arc<Caller>, uri: &str) -> Result<Option<Json>, PluginFailure> {
        let _permit = self.instance_permit().await?;
        let Some(text) = component_error(self.take_for(caller).await?.read_resource(uri).await?)? else {
            return Ok(None);
        };
        let contents: Vec<_> = array("contents", text)?.iter().map(Json::to_value).collect();
        Ok(Some(Json::of(&serde_json::json!({ "contents": contents }))))
    }

    /// Runs a tool. If the component keeps state, calls of one session run one after the other. If the
    /// component traps or exceeds a limit, the session's state is lost; an error of the tool keeps it. A session that
    /// the component cannot open is a failure of this call, and the next one opens it again. Dropping the future stops
    /// the guest and discards the session's state.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub async fn call(&self, caller: &Arc<Caller>, tool: &str, arguments: &Json) -> Result<Json, ToolFailure> {
        let arguments = arguments.as_str().to_owned();
        if !self.keeps_state {
            let _permit = self.instance_permit().await?;
            let (mut live, session) = self.open(caller).await?;
            return Ok(object(live.call(session, tool, &arguments).await?)?);
        }
        let session_instance = self.session_instance(&caller.session);
        let Ok(mut instance) = tokio::time::timeout(SESSION_WAIT, session_instance.lock()).await else {
            let why = "earlier calls of this session are still running";
            return Err(PluginFailure::new(FailureCode::Busy, why).into());
        };
        let _permit = self.instance_permit().await?;
        // Taken out during the call, so that an instance that trapped or was cancelled is not used again.
        let (mut live, session) = match instance.take() {
            Some((mut live, session)) => {
                live.store.data_mut().facts.caller = Some(Arc::clone(caller));
                (live, session)
            }
            None => self.open(caller).await?,
        };
        let result = live.call(session, tool, &arguments).await;
        if let Err(failure @ ToolFailure::Component(_)) = result {
            return Err(failure);
        }
        *instance = Some((live, session));
        drop(instance);
        self.kept.used(&session_instance, self.instance_pool.weight(), &self.identity);
        Ok(object(result?)?)
    }

    /// Discards the state of a session. A call of it that is running still finishes.
    pub fn end_session(&self, session: &SessionId) {
        self.sessions().live.remove(session);
    }

    /// Discards the state of all sessions.
    pub fn end_all(&self) {
        self.sessions().live.clear();
    }

    async fn instance_permit(&self) -> Result<Option<OwnedSemaphorePermit>, PluginFailure> {
        match self.instance_pool.confinement() {
            Some(confinement) => confinement.instance_permit(self.instance_pool.weight()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns an instance that has the store of a profile.
    async fn take(&self, profile: Option<&ProfileName>) -> Result<ReadyInstance<ToolsWorld>, PluginFailure> {
        let mut live = self.instance_pool.take().await?;
        let stores = self.instance_pool.confinement().and_then(|confinement| confinement.access.key_value.as_ref());
        live.store.data_mut().facts.kept = stores.zip(profile).map(|(stores, profile)| stores.of(profile));
        Ok(live)
    }

    /// Returns an instance for a call: with the store of the caller's profile, and the caller.
    async fn take_for(&self, caller: &Arc<Caller>) -> Result<ReadyInstance<ToolsWorld>, PluginFailure> {
        let mut live = self.take(Some(&caller.profile)).await?;
        live.store.data_mut().facts.caller = Some(Arc::clone(caller));
        Ok(live)
    }

    /// Opens a session in a fresh instance, on behalf of this caller.
    async fn open(&self, caller: &Arc<Caller>) -> Result<OpenSession, ToolFailure> {
        let mut live = self.take_for(caller).await?;
        match live.open().await? {
            Ok(session) => Ok((live, session)),
            Err(text) => Err(ToolFailure::Failed(format!("the session could not be opened: {text}"))),
        }
    }

    fn session_instance(&self, id: &SessionId) -> SessionInstance {
        let mut sessions = self.sessions();
        sessions.uses += 1;
        let used = sessions.uses;
        let fresh = || Session { instance: SessionInstance::default(), used };
        let session = sessions.live.entry(id.clone()).or_insert_with(fresh);
        session.used = used;
        let instance = session.instance.clone();
        let most =
            self.instance_pool.confinement().map_or(SOURCE_INSTANCES, |confinement| confinement.access.instances);
        // Beyond half of the slots, which is what all sources together keep, each of its sessions would end another.
        let most = most.min(TOOL_SLOTS / 2 / self.instance_pool.weight());
        if sessions.live.len() > most as usize
            && let Some(oldest) = sessions.live.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone())
        {
            tracing::info!(plugin = %self.identity.name, session = %oldest, "too many sessions; the least recently used one starts anew");
            sessions.live.remove(&oldest);
        }
        instance
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock()
    }
}

impl fmt::Debug for ToolsComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolsComponent").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn component_error<T>(result: Result<T, String>) -> Result<T, PluginFailure> {
    result.map_err(|text| PluginFailure::new(FailureCode::Error, text))
}
