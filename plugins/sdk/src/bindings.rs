//! The bindings that wit-bindgen generates from the contract: the imports once, then the exports of each world on top
//! of them, so that a `Call` is the same type in every world.
#![allow(missing_docs, unsafe_code, unreachable_pub, clippy::all, clippy::restriction, reason = "generated")]

wit_bindgen::generate!({
    path: "wit",
    inline: "package portcullis:sdk;
        world imports {
            import portcullis:plugin/calls@0.1.0;
            import portcullis:plugin/asks@0.1.0;
            import portcullis:plugin/log@0.1.0;
            import portcullis:plugin/lines@0.1.0;
            import portcullis:plugin/vault@0.1.0;
            import portcullis:plugin/key-value@0.1.0;
            import portcullis:plugin/caller@0.1.0;
            import portcullis:plugin/session@0.1.0;
        }",
    world: "portcullis:sdk/imports",
    generate_all,
    additional_derives: [PartialEq, Eq],
});

macro_rules! world {
    ($module:ident, $world:literal, $macro:literal, $bindings:literal, { $($with:tt)* }) => {
        pub mod $module {
            wit_bindgen::generate!({
                path: "wit",
                world: $world,
                with: { "portcullis:plugin/types@0.1.0": crate::bindings::portcullis::plugin::types, $($with)* },
                pub_export_macro: true,
                export_macro_name: $macro,
                default_bindings_module: $bindings,
                additional_derives: [PartialEq, Eq],
            });
        }
    };
}

world!(policy, "policy-plugin", "export_policy_world", "portcullis_plugin::bindings::policy", {
    "portcullis:plugin/calls@0.1.0": crate::bindings::portcullis::plugin::calls,
    "portcullis:plugin/log@0.1.0": crate::bindings::portcullis::plugin::log,
});
world!(transform, "transform-plugin", "export_transform_world", "portcullis_plugin::bindings::transform", {
    "portcullis:plugin/calls@0.1.0": crate::bindings::portcullis::plugin::calls,
    "portcullis:plugin/log@0.1.0": crate::bindings::portcullis::plugin::log,
    "portcullis:plugin/vault@0.1.0": crate::bindings::portcullis::plugin::vault,
});
world!(approval, "approval-plugin", "export_approval_world", "portcullis_plugin::bindings::approval", {
    "portcullis:plugin/calls@0.1.0": crate::bindings::portcullis::plugin::calls,
    "portcullis:plugin/asks@0.1.0": crate::bindings::portcullis::plugin::asks,
    "portcullis:plugin/log@0.1.0": crate::bindings::portcullis::plugin::log,
});
world!(audit, "audit-plugin", "export_audit_world", "portcullis_plugin::bindings::audit", {
    "portcullis:plugin/log@0.1.0": crate::bindings::portcullis::plugin::log,
    "portcullis:plugin/lines@0.1.0": crate::bindings::portcullis::plugin::lines,
});
world!(tools, "tools-plugin", "export_tools_world", "portcullis_plugin::bindings::tools", {
    "portcullis:plugin/log@0.1.0": crate::bindings::portcullis::plugin::log,
});
world!(resources, "resources-plugin", "export_resources_world", "portcullis_plugin::bindings::resources", {
    "portcullis:plugin/key-value@0.1.0": crate::bindings::portcullis::plugin::key_value,
});
