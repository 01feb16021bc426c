//! The worlds: for each the generated bindings, and the calls into a guest with the types of this crate.

use portcullis_core::limits::CallLimits;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre, Resource};

use super::super::guest::{GuestState, ReadyInstance, arm, guard};
use super::super::{FailureCode, PluginFailure, Settlement, TransformDecision, Verdict};
use super::{World, convert};

macro_rules! world {
    (
        $(#[$doc:meta])*
        $world:ident, $module:ident, $bindings:ident, $pre:ident, $wit:literal, $export:literal, $accessor:ident,
        imports: [$($import:literal),*], with: { $($key:literal: $path:ident),* }
    ) => {
        pub(super) mod $module {
            wasmtime::component::bindgen!({
                path: "wit",
                world: $wit,
                imports: { default: trappable },
                exports: { default: async },
                require_store_data_send: true,
                with: {
                    $($key: super::super::host::imports::portcullis::plugin::$path),*
                },
            });
        }

        $(#[$doc])*
        pub(crate) struct $world($module::$bindings);

        impl World for $world {
            const NAME: &'static str = stringify!($module);
            const EXPORT: &'static str = $export;
            const IMPORTS: &'static [&'static str] = &[$($import),*];
            type Prepared = $module::$pre<GuestState>;

            fn check(pre: InstancePre<GuestState>) -> wasmtime::Result<Self::Prepared> {
                $module::$pre::new(pre)
            }

            async fn instantiate(pre: &Self::Prepared, store: &mut Store<GuestState>) -> wasmtime::Result<(Self, Instance)> {
                let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
                Ok((Self($module::$bindings::new(store, &instance)?), instance))
            }

            async fn configure(
                &self,
                store: &mut Store<GuestState>,
                settings: &String,
            ) -> wasmtime::Result<Result<(), String>> {
                self.0.$accessor().call_configure(store, settings).await
            }
        }
    };
}

world! {
    /// An instance of `policy-plugin`.
    PolicyWorld, policy, PolicyPlugin, PolicyPluginPre, "policy-plugin", "policy", portcullis_plugin_policy,
    imports: ["types", "calls", "log", "session"],
    with: {
        "portcullis:plugin/types": types, "portcullis:plugin/calls": calls, "portcullis:plugin/log": log
    }
}

world! {
    /// An instance of `transform-plugin`.
    TransformWorld, transform, TransformPlugin, TransformPluginPre, "transform-plugin", "transform",
    portcullis_plugin_transform,
    imports: ["types", "calls", "log", "vault"],
    with: {
        "portcullis:plugin/types": types, "portcullis:plugin/calls": calls, "portcullis:plugin/log": log,
        "portcullis:plugin/vault": vault
    }
}

world! {
    /// An instance of `approval-plugin`.
    ApprovalWorld, approval, ApprovalPlugin, ApprovalPluginPre, "approval-plugin", "approval",
    portcullis_plugin_approval,
    imports: ["types", "calls", "log", "asks"],
    with: {
        "portcullis:plugin/types": types, "portcullis:plugin/calls": calls, "portcullis:plugin/log": log,
        "portcullis:plugin/asks": asks
    }
}

world! {
    /// An instance of `audit-plugin`.
    SinkWorld, audit, AuditPlugin, AuditPluginPre, "audit-plugin", "audit", portcullis_plugin_audit,
    imports: ["types", "log", "lines"],
    with: {
        "portcullis:plugin/types": types, "portcullis:plugin/log": log, "portcullis:plugin/lines": lines
    }
}

/// The number in a handle to a call or an ask. A store has only one of each, so the number has no meaning.
const ONLY: u32 = 0;

fn own_error<T>(result: Result<T, String>) -> Result<T, PluginFailure> {
    result.map_err(|text| PluginFailure::new(FailureCode::Error, text))
}

impl ReadyInstance<PolicyWorld> {
    /// Judges the call whose facts are in the store.
    pub(crate) async fn check(&mut self) -> Result<Verdict, PluginFailure> {
        let armed = arm(&mut self.store, CallLimits::DECISION);
        let guest = self.world.0.portcullis_plugin_policy();
        let verdict = guest.call_check(&mut self.store, Resource::new_own(ONLY));
        convert::verdict(own_error(guard(armed, verdict).await?)?)
    }
}

impl ReadyInstance<TransformWorld> {
    /// Rewrites the arguments or the outcome of the call whose facts are in the store.
    pub(crate) async fn rewrite(&mut self) -> Result<TransformDecision, PluginFailure> {
        let armed = arm(&mut self.store, CallLimits::REWRITE);
        let guest = self.world.0.portcullis_plugin_transform();
        let change = guest.call_rewrite(&mut self.store, Resource::new_own(ONLY));
        convert::change(own_error(guard(armed, change).await?)?)
    }
}

impl ReadyInstance<ApprovalWorld> {
    /// Settles the ask whose facts are in the store.
    pub(crate) async fn settle(&mut self) -> Result<Settlement, PluginFailure> {
        let armed = arm(&mut self.store, CallLimits::DECISION);
        let guest = self.world.0.portcullis_plugin_approval();
        let settled = guest.call_settle(&mut self.store, Resource::new_own(ONLY), Resource::new_own(ONLY));
        convert::settlement(own_error(guard(armed, settled).await?)?)
    }
}

impl ReadyInstance<SinkWorld> {
    /// Takes a batch, and returns the lines that the plugin wrote.
    pub(crate) async fn deliver(&mut self, records: &[String]) -> Result<String, PluginFailure> {
        let armed = arm(&mut self.store, CallLimits::DELIVER);
        let guest = self.world.0.portcullis_plugin_audit();
        let delivered = guest.call_deliver(&mut self.store, records);
        own_error(guard(armed, delivered).await?)?;
        Ok(std::mem::take(&mut self.store.data_mut().facts.lines))
    }
}
