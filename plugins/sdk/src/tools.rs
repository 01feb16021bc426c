//! Tools: a component that is a source.

use serde_json::{Value, json};

pub use crate::bindings::tools::exports::portcullis::plugin::tools::Failure;

/// A tool source.
pub trait Tools: Sized + 'static {
    /// One agent's view of the source; `()` for a source that remembers nothing.
    type Session: 'static;

    /// Whether the calls of one agent's session must reach the same [`Tools::Session`]. If false, each call gets a fresh one.
    const KEEPS_STATE: bool;

    /// Takes the source's `settings` table as JSON.
    ///
    /// # Errors
    /// Which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// The tools: a JSON array of MCP `Tool` objects. The same on every call.
    fn definitions(&self) -> String;

    /// Begins a session.
    fn open(&self) -> Self::Session;

    /// Runs a tool; the answer is an MCP `CallToolResult` as JSON.
    ///
    /// # Errors
    /// No such tool, arguments that do not fit, or anything else that keeps the call from a result.
    fn call(&self, session: &mut Self::Session, tool: &str, arguments: &str) -> Result<String, Failure>;
}

/// What a tool source offers to be read beside its tools. Every call has a fresh instance.
pub trait Resources: Tools {
    /// The resources of the caller's profile: a JSON array of MCP `Resource` objects.
    ///
    /// # Errors
    /// Why there is no list.
    fn list(&self) -> Result<String, String>;

    /// The contents of a resource: a JSON array of MCP `ResourceContents` objects. None if there is no such resource.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, uri: &str) -> Result<Option<String>, String>;
}

/// Reads the arguments of a call. Use `#[serde(deny_unknown_fields)]`, so that a misspelt argument is not one that is missing.
///
/// # Errors
/// [`Failure::InvalidArguments`]: the first argument that does not fit, as `arguments.path: …`.
pub fn arguments<T: serde::de::DeserializeOwned>(arguments: &str) -> Result<T, Failure> {
    crate::settings::read("arguments", arguments).map_err(Failure::InvalidArguments)
}

/// What a tool does to what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// It adds to it.
    Adds,
    /// It may overwrite or remove it.
    Overwrites,
}

/// A tool that takes these arguments and no others, as an MCP `Tool` object. `properties` is an object with the JSON Schema of
/// each. Its hints say this effect, that doing it twice does nothing more, and that all it knows is its own.
#[must_use]
pub fn tool(name: &str, description: &str, properties: Value, required: &[&str], effect: Effect) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        },
        "annotations": {
            "readOnlyHint": effect == Effect::Reads,
            "destructiveHint": effect == Effect::Overwrites,
            "idempotentHint": true,
            "openWorldHint": false,
        },
    })
}

/// An answer that is a text, as an MCP `CallToolResult`.
#[must_use]
pub fn text_result(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":false}}"#, crate::json::quote(text))
}

/// Makes the component export [`Tools`]. Once per crate.
#[macro_export]
macro_rules! export_tools {
    ($plugin:ty) => {
        $crate::__tools! { $plugin {} }
    };
}

/// Makes the component export [`Tools`] and [`Resources`]. Once per crate.
#[macro_export]
macro_rules! export_tools_and_resources {
    ($plugin:ty) => {
        $crate::__tools! { $plugin {
            struct Offered;

            impl $crate::bindings::resources::exports::portcullis::plugin::resources::Guest for Offered {
                fn list_resources() -> ::std::result::Result<::std::string::String, ::std::string::String> {
                    PLUGIN.with(|plugin| $crate::Resources::list(plugin.get()?))
                }

                fn read_resource(
                    uri: ::std::string::String,
                ) -> ::std::result::Result<::std::option::Option<::std::string::String>, ::std::string::String> {
                    PLUGIN.with(|plugin| $crate::Resources::read(plugin.get()?, &uri))
                }
            }

            $crate::bindings::resources::export_resources_world!(Offered with_types_in $crate::bindings::resources);
        } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tools {
    ($plugin:ty { $($more:tt)* }) => {
        $crate::__component! { $plugin: Tools, tools, export_tools_world, {
            type Session = Session;

            fn definitions() -> ::std::string::String {
                // Before `configure` there are no tools.
                PLUGIN.with(|plugin| plugin.get().map_or_else(|_| "[]".into(), $crate::Tools::definitions))
            }

            fn keeps_state() -> bool {
                <$plugin as $crate::Tools>::KEEPS_STATE
            }
        } {
            $($more)*

            struct Session($crate::Opened<<$plugin as $crate::Tools>::Session>);

            impl $crate::bindings::tools::exports::portcullis::plugin::tools::GuestSession for Session {
                fn new() -> Self {
                    Self($crate::Opened::new())
                }

                fn call(
                    &self,
                    tool: ::std::string::String,
                    arguments: ::std::string::String,
                ) -> ::std::result::Result<::std::string::String, $crate::Failure> {
                    PLUGIN.with(|plugin| {
                        let plugin = plugin.get().map_err($crate::Failure::Failed)?;
                        let call = |session: &mut _| $crate::Tools::call(plugin, session, &tool, &arguments);
                        self.0.with(|| $crate::Tools::open(plugin), call)
                    })
                }
            }
        } }
    };
}
