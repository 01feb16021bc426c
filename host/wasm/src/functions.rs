//! A component whose exported functions are tools: their WIT types become JSON Schema. Every call
//! gets a fresh instance.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use portcullis_core::call::Caller;
use portcullis_core::limits::{self, CallLimits};
use portcullis_core::protocol::Json;
use serde_json::{Value, json};
use tokio::time::timeout;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::component::{ComponentExportIndex, InstancePre, Val};

use super::access::EnforcedAccess;
use super::error::{FailureCode, PluginError, PluginFailure};
use super::guest::{GuestState, arm, guard};
use super::load::{self, AllowedImports, ComponentInterface, PluginBytes};
use super::v0_1::GuestFacts;
use super::{Host, PluginIdentity, ToolFailure};

mod docs;
mod schema;
#[cfg(test)]
mod tests;
mod value;

/// A loaded component of functions. Clones share it.
#[derive(Clone)]
pub struct FunctionsComponent(Arc<LoadedCode>);

struct LoadedCode {
    host: Arc<Host>,
    identity: PluginIdentity,
    pre: InstancePre<GuestState>,
    weight: u32,
    confinement: Arc<EnforcedAccess>,
    /// The functions by tool name.
    functions: BTreeMap<String, Function>,
}

/// One exported function.
struct Function {
    index: ComponentExportIndex,
    parameters: Vec<(String, Type)>,
    result: Option<Type>,
    definition: Json,
}

impl FunctionsComponent {
    /// Compiles and links the component and makes a tool of each function, without running any of it.
    pub(super) fn load(
        host: &Arc<Host>,
        wasm: &PluginBytes,
        manifest: &ComponentInterface,
        allowed: &AllowedImports,
        confinement: Arc<EnforcedAccess>,
        identity: PluginIdentity,
    ) -> Result<Self, PluginError> {
        let plugin = &wasm.plugin;
        let (pre, weight) = load::foreign(host, wasm, manifest, allowed, Ok)?;
        let component = pre.component();

        let docs = docs::Docs::of(manifest.docs.as_deref());
        let (mut functions, mut refused) = (BTreeMap::new(), Vec::new());
        for Exported { interface, name, ty } in exported(host, component) {
            let tool = tool_name(interface.as_deref(), &name);
            let at = interface.as_deref().map(|interface| component.get_export_index(None, interface));
            let index = match at {
                Some(None) => None,
                Some(Some(at)) => component.get_export_index(Some(&at), &name),
                None => component.get_export_index(None, &name),
            };
            let made = index
                .ok_or("it cannot be found".to_owned())
                .and_then(|index| Function::new(&tool, index, &ty, docs.function(interface.as_deref(), &name)));
            match made {
                Ok(_) if functions.contains_key(&tool) => refused.push(format!("`{tool}`: there are two of that name")),
                Ok(function) => drop(functions.insert(tool, function)),
                Err(why) => refused.push(format!("`{tool}`: {why}")),
            }
        }
        if functions.is_empty() {
            let why = format!("none of its functions can be a tool: {}", refused.join("; "));
            return Err(PluginError::NoSource { plugin: plugin.clone(), why });
        }
        for why in refused {
            tracing::warn!(%plugin, "a function is not offered as a tool: {why}");
        }
        Ok(Self(Arc::new(LoadedCode { host: Arc::clone(host), identity, pre, weight, confinement, functions })))
    }

    /// Returns which component it is.
    #[must_use]
    pub fn identity(&self) -> &PluginIdentity {
        &self.0.identity
    }

    /// Reports whether the component can neither change anything nor send anything out.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.0.confinement.access.is_harmless()
    }

    /// Returns the tools, as MCP `Tool` objects.
    #[must_use]
    pub fn definitions(&self) -> Vec<Json> {
        self.0.functions.values().map(|function| function.definition.clone()).collect()
    }

    /// Calls a function. Dropping the future stops the guest.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub async fn call(&self, caller: &Arc<Caller>, tool: &str, arguments: &Json) -> Result<Json, ToolFailure> {
        let function = self.0.functions.get(tool).ok_or(ToolFailure::UnknownTool)?;
        let (bytes, most) = (arguments.as_bytes().len(), limits::PAYLOAD_OUTPUT_BYTES);
        if bytes > most {
            let why = format!("the arguments have {bytes} bytes; a function takes at most {most}");
            return Err(ToolFailure::InvalidArguments(why));
        }
        let _permit = self.0.confinement.instance_permit(self.0.weight).await?;
        let slots = Arc::clone(&self.0.host.tools.free).acquire_many_owned(self.0.weight);
        let Ok(Ok(_slot)) = timeout(limits::SLOT_WAIT, slots).await else {
            let why = "every slot for plugin instances is in use";
            return Err(PluginFailure::new(FailureCode::Busy, why).into());
        };
        // Read into values they take many times their size, so calls that wait have not read them.
        let parameters = function.parameters(arguments).map_err(ToolFailure::InvalidArguments)?;
        let mut results = vec![Val::Bool(false); usize::from(function.result.is_some())];
        let LoadedCode { host, identity, pre, confinement, .. } = &*self.0;
        let kept = confinement.access.key_value.as_ref().map(|stores| stores.of(&caller.profile));
        let (plugin, caller) = (identity.name.as_str().into(), Some(Arc::clone(caller)));
        let facts = GuestFacts { plugin, kept, caller, ..GuestFacts::default() };
        let share = confinement.share().await?;
        let mut store = GuestState::confined(&host.engine, &host.clock, facts, confinement)?;
        store.data_mut().descriptors = share;
        let armed = arm(&mut store, CallLimits::START);
        let instance = guard(armed, pre.instantiate_async(&mut store)).await?;
        let missing = || PluginFailure::new(FailureCode::Output, "the function cannot be found");
        let callee = instance.get_func(&mut store, function.index).ok_or_else(missing)?;
        let limits = store.data().tool;
        let armed = arm(&mut store, limits);
        guard(armed, callee.call_async(&mut store, &parameters, &mut results)).await?;
        Ok(function.answer(results.first()))
    }
}

impl fmt::Debug for FunctionsComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionsComponent").field("identity", self.identity()).finish_non_exhaustive()
    }
}

impl Function {
    /// Makes a tool of a function, or returns why it cannot be one.
    fn new(tool: &str, index: ComponentExportIndex, ty: &ComponentFunc, docs: Option<String>) -> Result<Self, String> {
        if tool.contains(['[', '.']) {
            return Err("a function of a resource, which has no meaning outside the component".to_owned());
        }
        if ty.async_() {
            return Err("an asynchronous function, which needs another version of WASI".to_owned());
        }
        let parameters: Vec<_> = ty.params().map(|(name, ty)| (name.to_owned(), ty)).collect();
        let result = ty.results().next();
        let mut budget = schema::TypeBudget::default();
        let input = schema::object(parameters.iter().map(|(name, ty)| (name.as_str(), ty.clone())), &mut budget)?;
        let output = match result.as_ref().and_then(answered) {
            Some(ty) => Some(schema::object([("result", ty)].into_iter(), &mut budget)?),
            None => None,
        };
        if let Some(error) = result.as_ref().and_then(failed) {
            // The error type is not part of the tool's schema, but it must be one that can be written as JSON.
            schema::of(&error, &mut budget)?;
        }
        let members = [
            ("name", Some(json!(tool))),
            ("description", docs.map(Value::String)),
            ("inputSchema", Some(input)),
            ("outputSchema", output),
        ];
        let definition = object(members);
        Ok(Self { index, parameters, result, definition: Json::of(&definition) })
    }

    fn parameters(&self, arguments: &Json) -> Result<Vec<Val>, String> {
        if value::count(arguments.as_bytes()) > value::MAX_VALUES {
            return Err(value::too_many());
        }
        let arguments: Value = arguments.read().map_err(|error| format!("arguments: {error}"))?;
        let room = Cell::new(value::MAX_VALUES);
        let types = self.parameters.iter().map(|(name, ty)| (name.as_str(), ty.clone()));
        let fields = value::fields(types, &arguments, &value::At::root("arguments", &room))?;
        Ok(fields.into_iter().map(|(_, value)| value).collect())
    }

    /// Returns the function's result as an MCP `CallToolResult`. The error case of a `result` becomes a tool error.
    fn answer(&self, given: Option<&Val>) -> Json {
        let (given, ty, failed) = match (given, &self.result) {
            (Some(Val::Result(given)), Some(Type::Result(ty))) => match given {
                Ok(value) => (value.as_deref(), ty.ok(), false),
                Err(value) => (value.as_deref(), ty.err(), true),
            },
            (given, ty) => (given, ty.clone(), false),
        };
        let Some((given, ty)) = given.zip(ty) else {
            return Json::of(&json!({ "content": [], "isError": failed }));
        };
        let value = value::of(given, &ty);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Json::of(&object([
            ("content", Some(json!([{ "type": "text", "text": text }]))),
            ("structuredContent", (!failed).then(|| json!({ "result": value }))),
            ("isError", Some(json!(failed))),
        ]))
    }
}

/// Returns an object of the members that have a value.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the type of the function's error, if it can return one.
fn failed(result: &Type) -> Option<Type> {
    match result {
        Type::Result(ty) => ty.err(),
        _ => None,
    }
}

/// Returns the type of the function's value in the success case.
fn answered(result: &Type) -> Option<Type> {
    match result {
        Type::Result(ty) => ty.ok(),
        ty => Some(ty.clone()),
    }
}

/// An exported function and the interface that contains it, if any.
struct Exported {
    interface: Option<String>,
    name: String,
    ty: ComponentFunc,
}

fn exported(host: &Host, component: &wasmtime::component::Component) -> Vec<Exported> {
    let engine = &host.engine;
    let mut found = Vec::new();
    for (name, item) in component.component_type().exports(engine) {
        match item.ty {
            ComponentItem::ComponentFunc(ty) => found.push(Exported { interface: None, name: name.to_owned(), ty }),
            ComponentItem::ComponentInstance(instance) => {
                for (function, item) in instance.exports(engine) {
                    if let ComponentItem::ComponentFunc(ty) = item.ty {
                        found.push(Exported { interface: Some(name.to_owned()), name: function.to_owned(), ty });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the name of a function's tool: `shout` for a function that the component exports itself, `text_shout` for
/// one in the interface `acme:words/text@1.0.0`. This is unambiguous, as WIT names contain no underscores.
fn tool_name(interface: Option<&str>, function: &str) -> String {
    match interface.map(bare) {
        None => function.to_owned(),
        Some(interface) => format!("{interface}_{function}"),
    }
}

/// Returns the name of an interface without package and version.
fn bare(interface: &str) -> &str {
    let path = interface.split_once('@').map_or(interface, |(path, _)| path);
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
