//! Track 0.1 of the contract: the generated bindings, and the conversion between them and the types of this crate. No
//! generated type leaves this module.

use std::future::Future;

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::guest::GuestState;

mod convert;
mod host;
mod tools;
mod worlds;

pub(crate) use convert::{array, object};
pub(crate) use host::{GuestFacts, link};
pub(crate) use tools::{ToolSession, ToolsWorld};
pub(crate) use worlds::{ApprovalWorld, PolicyWorld, SinkWorld, TransformWorld};

/// The package that plugins of this track are built for, without its version.
pub(crate) const PACKAGE: &str = "portcullis:plugin";

/// The track that is served: a version without its patch number.
pub(crate) const TRACK: &str = "0.1";

/// The methods of a call that concern its information flow, as components import them.
pub(crate) const FLOW_METHODS: [&str; 5] = [
    "[method]call.source-labels",
    "[method]call.effects",
    "[method]call.labels",
    "[method]call.traced",
    "[method]call.origins",
];

/// A world of the contract, as the code that loads and starts plugins sees it.
pub(crate) trait World: Sized + Send + 'static {
    /// The name for people: the kind of plugin.
    const NAME: &'static str;
    /// The interface that the world exports, without its package.
    const EXPORT: &'static str;
    /// The interfaces that a plugin of the world may import without a grant.
    const IMPORTS: &'static [&'static str];
    /// A component that was checked against the world and linked, ready to be instantiated many times.
    type Prepared: Clone + Send + Sync + 'static;

    /// Checks that the component exports what the world requires.
    fn check(pre: InstancePre<GuestState>) -> wasmtime::Result<Self::Prepared>;

    /// Makes an instance; returns the world's view of it, and the engine's.
    fn instantiate(
        pre: &Self::Prepared,
        store: &mut Store<GuestState>,
    ) -> impl Future<Output = wasmtime::Result<(Self, Instance)>> + Send;

    /// Passes the settings to the plugin; the inner error is the plugin's own text.
    #[expect(clippy::ptr_arg, reason = "the bindings take a `&String`")]
    fn configure(
        &self,
        store: &mut Store<GuestState>,
        settings: &String,
    ) -> impl Future<Output = wasmtime::Result<Result<(), String>>> + Send;
}
