//! Stands for the proofs in a program that is built without them.

use std::sync::Arc;

use portcullis::config::{Config, PluginConfig};
use portcullis::item::Item;

use super::judge::Judge;
use super::search::Wider;

/// The result of a proof.
pub(super) enum Proof {
    #[expect(dead_code, reason = "only a solver gives it")]
    NeverWider,
    #[expect(dead_code, reason = "only a solver gives it")]
    Wider(Box<Wider>),
    /// Nothing is known, for this reason.
    Impossible(String),
}

/// The calls that there can be.
#[cfg_attr(not(feature = "prove"), expect(dead_code, reason = "only a solver reads all of it"))]
pub(super) struct KnownCalls<'a> {
    pub(super) config: &'a Config,
    pub(super) items: &'a [Arc<Item>],
    /// The types of the calls, in Cedar's syntax.
    pub(super) schema: &'a str,
}

/// Says that this program proves nothing.
pub(super) async fn prove(_: &[PluginConfig], _: &[PluginConfig], _: &KnownCalls<'_>, _: &Judge) -> Proof {
    Proof::Impossible("this program is built without the feature `prove`".to_owned())
}
