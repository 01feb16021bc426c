//! The `tools` world, and the `resources` world that a component of tools may implement as well.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre, ResourceAny};

use super::super::guest::{CallBudget, GuestState, ReadyInstance, arm, guard};
use super::super::load::interface;
use super::super::{PluginFailure, ToolFailure};
use super::{World, convert};

pub(super) mod world {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "tools-plugin",
        imports: { default: trappable },
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "portcullis:plugin/types": super::super::host::imports::portcullis::plugin::types,
            "portcullis:plugin/log": super::super::host::imports::portcullis::plugin::log,
        },
    });
}

mod resources {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "resources-plugin",
        imports: { default: async | trappable },
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "portcullis:plugin/types": super::super::host::imports::portcullis::plugin::types,
            "portcullis:plugin/key-value": super::super::host::key_value::imports::portcullis::plugin::key_value,
        },
    });
}

/// An instance of `tools-plugin`, and of `resources-plugin` if the component implements both.
pub(crate) struct ToolsWorld {
    tools: world::ToolsPlugin,
    resources: Option<resources::ResourcesPlugin>,
}

/// A component of tools that is ready to be instantiated.
#[derive(Clone)]
pub(crate) struct ToolsPre {
    tools: world::ToolsPluginPre<GuestState>,
    resources: Option<resources::ResourcesPluginPre<GuestState>>,
}

/// The interface that a component with resources exports.
const RESOURCES: &str = "resources";

impl ToolsWorld {
    /// Reports whether a component with these exports offers resources.
    pub(crate) fn offers_resources(exports: &[String]) -> bool {
        exports.iter().any(|name| interface(name) == Some(RESOURCES))
    }
}

impl World for ToolsWorld {
    const NAME: &'static str = "tools";
    const EXPORT: &'static str = "tools";
    const IMPORTS: &'static [&'static str] = &["types", "log"];
    type Prepared = ToolsPre;

    fn check(pre: InstancePre<GuestState>) -> wasmtime::Result<ToolsPre> {
        let component = pre.component();
        let exports = component.component_type();
        let offers = exports.exports(pre.engine()).any(|(name, _)| interface(name) == Some(RESOURCES));
        let resources = offers.then(|| resources::ResourcesPluginPre::new(pre.clone())).transpose()?;
        Ok(ToolsPre { tools: world::ToolsPluginPre::new(pre)?, resources })
    }

    async fn instantiate(pre: &ToolsPre, store: &mut Store<GuestState>) -> wasmtime::Result<(Self, Instance)> {
        let instance = pre.tools.instance_pre().instantiate_async(&mut *store).await?;
        let tools = world::ToolsPlugin::new(&mut *store, &instance)?;
        let offers = pre.resources.is_some();
        let resources = offers.then(|| resources::ResourcesPlugin::new(store, &instance)).transpose()?;
        Ok((Self { tools, resources }, instance))
    }

    async fn configure(
        &self,
        store: &mut Store<GuestState>,
        settings: &String,
    ) -> wasmtime::Result<Result<(), String>> {
        self.tools.portcullis_plugin_tools().call_configure(store, settings).await
    }
}

/// A session resource of a tools plugin. It belongs to the instance that made it.
#[derive(Clone, Copy)]
pub(crate) struct ToolSession(ResourceAny);

impl ReadyInstance<ToolsWorld> {
    fn arm(&mut self) -> CallBudget {
        let limits = self.store.data().tool;
        arm(&mut self.store, limits)
    }

    /// Returns the definitions as JSON text, or the component's error.
    pub(crate) async fn definitions(&mut self) -> Result<Result<String, String>, PluginFailure> {
        let armed = self.arm();
        let guest = self.world.tools.portcullis_plugin_tools();
        guard(armed, guest.call_definitions(&mut self.store)).await
    }

    /// Reports whether all calls of a session must reach the same instance.
    pub(crate) async fn keeps_state(&mut self) -> Result<bool, PluginFailure> {
        let armed = self.arm();
        let guest = self.world.tools.portcullis_plugin_tools();
        guard(armed, guest.call_keeps_state(&mut self.store)).await
    }

    /// Opens a session, or returns the component's error.
    pub(crate) async fn open(&mut self) -> Result<Result<ToolSession, String>, PluginFailure> {
        let armed = self.arm();
        let guest = self.world.tools.portcullis_plugin_tools().session();
        Ok(guard(armed, guest.call_open(&mut self.store)).await?.map(ToolSession))
    }

    /// Runs a tool.
    pub(crate) async fn call(
        &mut self,
        session: ToolSession,
        tool: &str,
        arguments: &String,
    ) -> Result<String, ToolFailure> {
        let armed = self.arm();
        let guest = self.world.tools.portcullis_plugin_tools().session();
        let result = guest.call_call(&mut self.store, session.0, tool, arguments);
        guard(armed, result).await?.map_err(convert::tool_failure)
    }

    /// Returns the resources as JSON text, or the component's error; `None` if the component offers none.
    pub(crate) async fn list_resources(&mut self) -> Result<Option<Result<String, String>>, PluginFailure> {
        let armed = self.arm();
        let Some(world) = &self.world.resources else { return Ok(None) };
        let guest = world.portcullis_plugin_resources();
        guard(armed, guest.call_list_resources(&mut self.store)).await.map(Some)
    }

    /// Returns the contents of a resource as JSON text; `None` if there is none of that URI.
    pub(crate) async fn read_resource(&mut self, uri: &str) -> Result<Result<Option<String>, String>, PluginFailure> {
        let armed = self.arm();
        let Some(world) = &self.world.resources else { return Ok(Ok(None)) };
        let guest = world.portcullis_plugin_resources();
        guard(armed, guest.call_read_resource(&mut self.store, uri)).await
    }
}
