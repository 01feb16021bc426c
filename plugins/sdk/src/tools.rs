//! Tool sources: components that offer tools and resources.

use serde_json::{Value, json};

pub use crate::bindings::tools::exports::portcullis::plugin::tools::Failure;

/// A component that is a tool source.
pub trait Tools: Sized + 'static {
    /// The state that the source keeps for one agent's session; `()` for a source that keeps nothing.
    type Session: 'static;

    /// True if all calls of one agent's session must reach the same [`Tools::Session`]. If false, each call gets a
    /// fresh one.
    const KEEPS_STATE: bool;

    /// Reads the source's `settings` table, which is given as JSON.
    ///
    /// # Errors
    /// Says which field is wrong and why; the broker does not start.
    fn configure(settings: &str) -> Result<Self, String>;

    /// Returns the tools: a JSON array of MCP `Tool` objects, the same on every call.
    ///
    /// # Errors
    /// Says why the source has no tools now; the source is unavailable, and the operator is shown the text.
    fn definitions(&self) -> Result<String, String>;

    /// Opens a session, in the call that needs it.
    ///
    /// # Errors
    /// Says why the session cannot be opened; that is the answer to the call, and the next call tries again.
    fn open(&self) -> Result<Self::Session, String>;

    /// Runs a tool and returns an MCP `CallToolResult` as JSON.
    ///
    /// # Errors
    /// There is no such tool, the arguments do not fit, or the call failed in another way before it produced a result.
    fn call(&self, session: &mut Self::Session, tool: &str, arguments: &str) -> Result<String, Failure>;
}

/// A tool source that offers resources in addition to its tools. Every call gets a fresh instance.
pub trait Resources: Tools {
    /// Returns the resources of the caller's profile: a JSON array of MCP `Resource` objects.
    ///
    /// # Errors
    /// Says why the resources cannot be listed.
    fn list(&self) -> Result<String, String>;

    /// Returns the contents of a resource, a JSON array of MCP `ResourceContents` objects, or `None` if there
    /// is no such resource.
    ///
    /// # Errors
    /// Says why the resource cannot be read.
    fn read(&self, uri: &str) -> Result<Option<String>, String>;
}

/// Parses the arguments of a call. Use `#[serde(deny_unknown_fields)]`, so that a misspelt argument is an error and not
/// taken for a missing one.
///
/// # Errors
/// [`Failure::InvalidArguments`] with the first argument that does not fit, as in `arguments.path: …`.
pub fn arguments<T: serde::de::DeserializeOwned>(arguments: &str) -> Result<T, Failure> {
    crate::settings::read("arguments", arguments).map_err(Failure::InvalidArguments)
}

/// The effect of a tool on the data that it works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only reads the data.
    Reads,
    /// It adds to the data.
    Adds,
    /// It may overwrite or remove data.
    Overwrites,
}

/// Returns an MCP `Tool` object for a tool that takes these arguments and no others. `properties` is an object
/// with the JSON Schema of each argument. The hints state the given effect, and that the tool is idempotent and
/// reaches no open world.
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

/// Returns an MCP `CallToolResult` whose content is one text.
#[must_use]
pub fn text_result(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":false}}"#, crate::json::quote(text))
}

/// Exports a type that implements [`Tools`] as the component's tool source. Call it once per crate.
#[macro_export]
macro_rules! export_tools {
    ($plugin:ty) => {
        $crate::__tools! { $plugin {} }
    };
}

/// Exports a type that implements [`Tools`] and [`Resources`] as the component's tool source. Call it once per crate.
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

            fn definitions() -> ::std::result::Result<::std::string::String, ::std::string::String> {
                PLUGIN.with(|plugin| $crate::Tools::definitions(plugin.get()?))
            }

            fn keeps_state() -> bool {
                <$plugin as $crate::Tools>::KEEPS_STATE
            }
        } {
            $($more)*

            struct Session(::std::cell::RefCell<<$plugin as $crate::Tools>::Session>);

            impl $crate::bindings::tools::exports::portcullis::plugin::tools::GuestSession for Session {
                fn open() -> ::std::result::Result<
                    $crate::bindings::tools::exports::portcullis::plugin::tools::Session,
                    ::std::string::String,
                > {
                    let state = PLUGIN.with(|plugin| $crate::Tools::open(plugin.get()?))?;
                    let session = Self(::std::cell::RefCell::new(state));
                    Ok($crate::bindings::tools::exports::portcullis::plugin::tools::Session::new(session))
                }

                fn call(
                    &self,
                    tool: ::std::string::String,
                    arguments: ::std::string::String,
                ) -> ::std::result::Result<::std::string::String, $crate::Failure> {
                    PLUGIN.with(|plugin| {
                        let plugin = plugin.get().map_err($crate::Failure::Failed)?;
                        let in_a_call = |_| $crate::Failure::Failed("the session is in a call".into());
                        let mut session = self.0.try_borrow_mut().map_err(in_a_call)?;
                        $crate::Tools::call(plugin, &mut *session, &tool, &arguments)
                    })
                }
            }
        } }
    };
}
