//! The cell of a component source: the access that it has, and how its limits are enforced.

use std::time::Duration;

use portcullis_cell::{CellGrant, IsolationAspect, Strength, display_size, paths_as_text};
use portcullis_core::digest::Digest;
use serde_json::json;

use super::GrantedImports;

/// A component source and its access, for reports. It applies from the moment the component is loaded.
#[derive(Debug, Clone)]
pub struct ComponentCell {
    /// The component: `builtin:NAME`, or the path.
    pub component: String,
    /// The digest of the `.wasm` file.
    pub digest: Digest,
    /// The kind of source: `tools`, `command` or `functions`.
    pub kind: &'static str,
    /// The component's imports, and what it gets from them.
    pub imports: Vec<GrantedImports>,
    /// The files, network and resources that the component is granted.
    pub grant: CellGrant,
    /// True if it has a key-value store, in which it can leave data for later calls.
    pub has_store: bool,
    /// The processor time of one call.
    pub processor_time: Duration,
    /// The number of instances that may run at once.
    pub instances: u32,
    /// The bytes that may pass between component and host in one call.
    pub output: usize,
}

impl ComponentCell {
    /// Reports whether the source can neither change anything nor send anything out.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.grant.is_harmless() && !self.has_store
    }

    /// Returns the enforced limits, in the order of
    /// [`IsolationReport::aspects`](portcullis_cell::IsolationReport::aspects).
    #[must_use]
    pub fn aspects(&self) -> Vec<IsolationAspect> {
        let CellGrant { read, write, limits: spend, .. } = &self.grant;
        let files = match (read.len(), write.len()) {
            (0, 0) => "there are none".to_owned(),
            (read, write) => format!("granted folders, opened at its start; {read} to read, {write} to write"),
        };
        let files = if self.has_store { format!("{files}; a store of its own for each profile") } else { files };
        let network = match self.grant.network.is_empty() {
            true => "there is none",
            false => "by granted names, whose addresses are checked; no UDP, and nothing listens",
        };
        let seconds = self.processor_time.as_secs_f32();
        let cpu = match spend.cpu {
            Some(cpu) if cpu < 1.0 => format!("{seconds} s a call, of {cpu} processors"),
            _ => format!("{seconds} s a call, of one processor"),
        };
        let memory =
            format!("{} for each instance, of which {} work at once", display_size(spend.memory), self.instances);
        [
            ("environment", "empty, then listed".to_owned()),
            ("descriptors", "there are none".to_owned()),
            ("files", files),
            ("network", network.to_owned()),
            ("memory", memory),
            ("processes", "it cannot start any, and has one thread".to_owned()),
            ("cpu", cpu),
            ("kill-tree", "it is dropped with its memory".to_owned()),
        ]
        .map(|(subject, mechanism)| IsolationAspect { subject, strength: Strength::Enforced, mechanism })
        .into()
    }

    /// Returns the cell as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Self { component, digest, kind, imports, grant, .. } = self;
        let mut leaks = vec!["it runs in the broker's process: what holds it is WebAssembly, not the kernel"];
        if imports.iter().any(|opened| opened.package.starts_with("wasi:clocks@")) {
            leaks.push("the clock, and how busy the machine is");
        }
        let sockets = |opened: &GrantedImports| opened.package.starts_with("wasi:sockets@");
        if !grant.network.is_empty() && imports.iter().any(sockets) {
            leaks.push("over a socket, whatever else answers at the address of a granted host");
        }
        json!({
            "component": component,
            "digest": digest,
            "kind": kind,
            "imports": imports,
            "read": paths_as_text(&grant.read),
            "write": paths_as_text(&grant.write),
            "kept": paths_as_text(&grant.protected),
            "network": grant.network,
            "limits": {
                "memory": grant.limits.memory,
                "cpu": grant.limits.cpu,
                "instances": self.instances,
                "output": self.output,
            },
            "harmless": self.is_harmless(),
            "isolation": { "tier": "wasm", "aspects": self.aspects(), "leaks": leaks },
        })
    }
}
