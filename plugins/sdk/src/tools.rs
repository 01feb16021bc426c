//! Tools: a component that is a source.

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

/// Makes the component export [`Tools`]. Once per crate.
#[macro_export]
macro_rules! export_tools {
    ($plugin:ty) => {
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
