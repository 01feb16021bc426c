//! Track 0.1 of the contract: the generated bindings, and their conversion to and from the types of this crate. No generated
//! type leaves this module.

use std::future::Future;

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::guest::State;

mod convert;
mod host;
mod tools;
mod worlds;

pub(crate) use convert::{array, object};
pub(crate) use host::{Facts, link};
pub(crate) use tools::{ToolSession, ToolsWorld};
pub(crate) use worlds::{ApprovalWorld, PolicyWorld, SinkWorld, TransformWorld};

/// The package that plugins of this track are built for, without its patch version.
pub(crate) const PACKAGE: &str = "portcullis:plugin";

/// The track.
pub(crate) const TRACK: &str = "0.1";

/// What differs between worlds for the code that loads and starts plugins.
pub(crate) trait World: Sized + Send + 'static {
    /// How people call it.
    const NAME: &'static str;
    /// The interface it exports, without package.
    const EXPORT: &'static str;
    /// The interfaces it may import without a grant.
    const IMPORTS: &'static [&'static str];
    /// Checked against the world once, instantiated often.
    type Pre: Clone + Send + Sync + 'static;

    /// Checks that the exports are what the world says.
    fn check(pre: InstancePre<State>) -> wasmtime::Result<Self::Pre>;

    /// Makes an instance; the second is what it is to the engine.
    fn instantiate(
        pre: &Self::Pre,
        store: &mut Store<State>,
    ) -> impl Future<Output = wasmtime::Result<(Self, Instance)>> + Send;

    /// Hands over the settings; the inner error is the plugin's own text.
    #[expect(clippy::ptr_arg, reason = "the bindings take it so")]
    fn configure(
        &self,
        store: &mut Store<State>,
        settings: &String,
    ) -> impl Future<Output = wasmtime::Result<Result<(), String>>> + Send;
}
