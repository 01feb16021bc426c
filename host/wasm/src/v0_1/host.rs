//! The host's side of the imports: the requests that a guest can make during a call.

use std::borrow::Cow;
use std::sync::Arc;

use portcullis_core::call::{CallView, Caller};
use portcullis_core::escape::escape_hidden;
use portcullis_core::flow::{CallFlow, Origin, StatedFlow};
use portcullis_core::limits;
use portcullis_core::protocol::Json;
use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime::{Result, bail};

use super::super::guest::GuestState;
use super::super::{AskFacts, GrantFacts, Vault};
use super::convert;
use crate::key_value::KeyValueStore;

mod caller;
pub(super) mod key_value;
mod session_facts;

pub(super) mod imports {
    wasmtime::component::bindgen!({
        path: "wit",
        inline: "
            package portcullis:host;
            world everything {
                import portcullis:plugin/types@0.1.0;
                import portcullis:plugin/calls@0.1.0;
                import portcullis:plugin/asks@0.1.0;
                import portcullis:plugin/log@0.1.0;
                import portcullis:plugin/vault@0.1.0;
                import portcullis:plugin/lines@0.1.0;
                import portcullis:plugin/caller@0.1.0;
                import portcullis:plugin/session@0.1.0;
            }
        ",
        world: "portcullis:host/everything",
        imports: { default: trappable },
        with: {
            "portcullis:plugin/calls.call": super::CallHandle,
            "portcullis:plugin/calls.origin": super::OriginHandle,
            "portcullis:plugin/asks.ask": super::AskHandle,
            "portcullis:plugin/asks.grant": super::GrantHandle,
        },
    });
}

use imports::portcullis::plugin::{asks, calls, lines, log, session, types, vault};

/// A handle to the one call that a store is about. It is empty: the facts are in the store.
#[expect(unreachable_pub, reason = "the bindings re-export it as `pub`")]
pub struct CallHandle;

/// A handle to one origin of the call that a store is about; its number is the index in the list that the guest got.
#[expect(unreachable_pub, reason = "the bindings re-export it as `pub`")]
pub struct OriginHandle;

/// A handle to the one ask that a store is about.
#[expect(unreachable_pub, reason = "the bindings re-export it as `pub`")]
pub struct AskHandle;

/// A handle to one earlier answer of the ask that a store is about; its number is the index in the ask.
#[expect(unreachable_pub, reason = "the bindings re-export it as `pub`")]
pub struct GrantHandle;

/// The facts that the guest may ask for during the running call.
#[derive(Default)]
pub(crate) struct GuestFacts {
    /// The name of the plugin in the log.
    pub plugin: Arc<str>,
    /// The call that the plugin decides about.
    pub view: Option<CallView>,
    /// The facts of the call that the plugin has asked for, if its author wants to know.
    pub asked: Option<Vec<&'static str>>,
    /// The lines that the plugin has written to the log, if its author wants to know.
    pub log: Option<Vec<String>>,
    /// The origins of the call's arguments, once the guest has asked for them.
    pub origins: Vec<Origin>,
    /// The ask that an approval plugin settles.
    pub ask: Option<AskFacts>,
    /// The vault in which a transform keeps values.
    pub vault: Option<Arc<dyn Vault>>,
    /// The lines that a sink has written in this batch.
    pub lines: String,
    /// The store of the caller's profile, if the source has one.
    pub kept: Option<KeyValueStore>,
    /// The caller of the running call, if the component of a source serves one.
    pub caller: Option<Arc<Caller>>,
    /// The number of further lines that the log accepts in this call.
    pub(crate) log_lines_left: u32,
}

/// Defines one interface of the contract in a linker. The linker determines what a plugin can do: an interface that is
/// not defined here does not exist for the plugin.
pub(crate) fn link(linker: &mut Linker<GuestState>, interface: &str) -> Result<()> {
    type This = HasSelf<GuestState>;
    match interface {
        "types" => types::add_to_linker::<_, This>(linker, |state| state),
        "calls" => calls::add_to_linker::<_, This>(linker, |state| state),
        "asks" => asks::add_to_linker::<_, This>(linker, |state| state),
        "log" => log::add_to_linker::<_, This>(linker, |state| state),
        "vault" => vault::add_to_linker::<_, This>(linker, |state| state),
        "key-value" => key_value::key_value::add_to_linker::<_, This>(linker, |state| state),
        "caller" => imports::portcullis::plugin::caller::add_to_linker::<_, This>(linker, |state| state),
        "session" => session::add_to_linker::<_, This>(linker, |state| state),
        "lines" => lines::add_to_linker::<_, This>(linker, |state| state),
        _ => bail!("no interface {interface}"),
    }
}

impl GuestState {
    fn view(&mut self, asked: &'static str) -> Result<&CallView> {
        self.host_call()?;
        if let Some(all) = &mut self.facts.asked {
            all.push(asked);
        }
        self.facts.view.as_ref().ok_or_else(|| wasmtime::format_err!("no call is being decided"))
    }

    /// Returns the information flow of the call. Where nothing is known, the call is described as the most dangerous
    /// one.
    fn flow(&mut self, asked: &'static str) -> Result<Arc<dyn CallFlow>> {
        let flow = self.view(asked)?.flow.clone();
        Ok(flow.unwrap_or_else(|| Arc::new(StatedFlow::unknown())))
    }

    fn origin(&mut self, origin: &Resource<OriginHandle>) -> Result<&Origin> {
        self.host_call()?;
        let number = usize::try_from(origin.rep())?;
        self.facts.origins.get(number).ok_or_else(|| wasmtime::format_err!("no such origin"))
    }

    fn ask(&mut self) -> Result<&AskFacts> {
        self.host_call()?;
        self.facts.ask.as_ref().ok_or_else(|| wasmtime::format_err!("no ask is being settled"))
    }

    fn grant(&mut self, grant: &Resource<GrantHandle>) -> Result<&GrantFacts> {
        let number = usize::try_from(grant.rep())?;
        self.ask()?.grants.get(number).ok_or_else(|| wasmtime::format_err!("no such grant"))
    }
}

impl types::Host for GuestState {}
impl calls::Host for GuestState {}
impl asks::Host for GuestState {}

impl calls::HostCall for GuestState {
    fn id(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("id")?.call.id.to_string())
    }

    fn received_at(&mut self, _: Resource<CallHandle>) -> Result<u64> {
        Ok(self.view("received-at")?.call.received_at)
    }

    fn phase(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("phase")?.phase.as_str().to_owned())
    }

    fn method(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("method")?.call.method.to_string())
    }

    fn source(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("source")?.call.source().to_string())
    }

    fn tool(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("tool")?.call.item.name.to_string())
    }

    fn exposed_name(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("exposed-name")?.call.item.exposed.to_string())
    }

    fn arguments(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("arguments")?.call.arguments.as_str().to_owned())
    }

    fn outcome(&mut self, _: Resource<CallHandle>) -> Result<Option<String>> {
        Ok(self.view("outcome")?.outcome.as_ref().map(|json| json.as_str().to_owned()))
    }

    fn outcome_is_error(&mut self, _: Resource<CallHandle>) -> Result<bool> {
        Ok(self.view("outcome-is-error")?.outcome_is_error())
    }

    fn definition(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("definition")?.call.item.definition.as_str().to_owned())
    }

    fn definition_digest(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("definition-digest")?.call.item.digest.to_string())
    }

    fn annotations(&mut self, _: Resource<CallHandle>) -> Result<String> {
        let annotations = self.view("annotations")?.call.item.definition.get("annotations");
        Ok(annotations.unwrap_or(Json::empty_object()).as_str().to_owned())
    }

    fn principal(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("principal")?.call.caller.principal.to_string())
    }

    fn profile(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("profile")?.call.caller.profile.to_string())
    }

    fn session(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("session")?.call.caller.session.to_string())
    }

    fn client(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("client")?.call.caller.client.to_string())
    }

    fn trust(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("trust")?.call.caller.trust.as_str().to_owned())
    }

    fn risk(&mut self, _: Resource<CallHandle>) -> Result<String> {
        Ok(self.view("risk")?.call.risk.as_str().to_owned())
    }

    fn tags(&mut self, _: Resource<CallHandle>) -> Result<Vec<String>> {
        Ok(self.view("tags")?.call.item.tags.to_vec())
    }

    fn source_labels(&mut self, _: Resource<CallHandle>) -> Result<Vec<String>> {
        Ok(self.flow("source-labels")?.source_labels().to_vec())
    }

    fn effects(&mut self, _: Resource<CallHandle>) -> Result<Vec<String>> {
        Ok(self.flow("effects")?.effects().iter().map(|effect| effect.as_str().to_owned()).collect())
    }

    fn labels(&mut self, _: Resource<CallHandle>) -> Result<Vec<String>> {
        Ok(self.flow("labels")?.labels().to_vec())
    }

    fn traced(&mut self, _: Resource<CallHandle>) -> Result<bool> {
        Ok(self.flow("traced")?.is_traced())
    }

    fn origins(&mut self, _: Resource<CallHandle>) -> Result<Vec<Resource<OriginHandle>>> {
        let origins = self.flow("origins")?.origins();
        let numbers = 0..u32::try_from(origins.len())?;
        self.facts.origins = origins;
        Ok(numbers.map(Resource::new_own).collect())
    }

    fn drop(&mut self, _: Resource<CallHandle>) -> Result<()> {
        Ok(())
    }
}

impl calls::HostOrigin for GuestState {
    fn source(&mut self, origin: Resource<OriginHandle>) -> Result<String> {
        Ok(self.origin(&origin)?.source.to_string())
    }

    fn exposed_name(&mut self, origin: Resource<OriginHandle>) -> Result<String> {
        Ok(self.origin(&origin)?.exposed.to_string())
    }

    fn call_id(&mut self, origin: Resource<OriginHandle>) -> Result<String> {
        Ok(self.origin(&origin)?.call.to_string())
    }

    fn calls_ago(&mut self, origin: Resource<OriginHandle>) -> Result<u32> {
        Ok(self.origin(&origin)?.calls_ago)
    }

    fn labels(&mut self, origin: Resource<OriginHandle>) -> Result<Vec<String>> {
        Ok(self.origin(&origin)?.labels.to_vec())
    }

    fn pointer(&mut self, origin: Resource<OriginHandle>) -> Result<String> {
        Ok(self.origin(&origin)?.pointer.clone())
    }

    fn drop(&mut self, _: Resource<OriginHandle>) -> Result<()> {
        Ok(())
    }
}

impl asks::HostAsk for GuestState {
    fn reasons(&mut self, _: Resource<AskHandle>) -> Result<Vec<types::Concern>> {
        Ok(self.ask()?.reasons.iter().cloned().map(convert::their_concern).collect())
    }

    fn grants(&mut self, _: Resource<AskHandle>) -> Result<Vec<Resource<GrantHandle>>> {
        let numbers = 0..u32::try_from(self.ask()?.grants.len())?;
        Ok(numbers.map(Resource::new_own).collect())
    }

    fn grave(&mut self, _: Resource<AskHandle>) -> Result<bool> {
        Ok(self.ask()?.grave)
    }

    fn drop(&mut self, _: Resource<AskHandle>) -> Result<()> {
        Ok(())
    }
}

impl asks::HostGrant for GuestState {
    fn id(&mut self, grant: Resource<GrantHandle>) -> Result<String> {
        Ok(self.grant(&grant)?.id.clone())
    }

    fn scope(&mut self, grant: Resource<GrantHandle>) -> Result<asks::Scope> {
        Ok(convert::their_scope(self.grant(&grant)?.scope))
    }

    fn age(&mut self, grant: Resource<GrantHandle>) -> Result<u32> {
        Ok(self.grant(&grant)?.age)
    }

    fn drop(&mut self, _: Resource<GrantHandle>) -> Result<()> {
        Ok(())
    }
}

impl log::Host for GuestState {
    fn write(&mut self, level: log::Level, line: String) -> Result<()> {
        self.host_call()?;
        let Some(left) = self.facts.log_lines_left.checked_sub(1) else { return Ok(()) };
        self.facts.log_lines_left = left;
        let (plugin, line) = (&self.facts.plugin, on_one_line(&line));
        if let Some(all) = &mut self.facts.log {
            all.push(line.to_string());
        }
        match level {
            log::Level::Debug => tracing::debug!(target: "plugin", %plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "plugin", %plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "plugin", %plugin, "{line}"),
            log::Level::Error => tracing::error!(target: "plugin", %plugin, "{line}"),
        }
        if left == 0 {
            tracing::warn!(target: "plugin", %plugin, "more than {} lines in one call; the rest is dropped", limits::LOG_LINES);
        }
        Ok(())
    }
}

impl vault::Host for GuestState {
    fn protect(&mut self, kind: String, value: String, restore_to: Vec<String>) -> Result<String> {
        self.host_call()?;
        let vault = self.facts.vault.as_ref().ok_or_else(|| wasmtime::format_err!("no value is being rewritten"))?;
        Ok(vault.protect(&kind, &value, restore_to))
    }
}

impl lines::Host for GuestState {
    fn append(&mut self, line: String) -> Result<std::result::Result<(), String>> {
        self.host_call()?;
        if line.contains(['\n', '\r']) {
            return Ok(Err("a line must not hold a line feed".into()));
        }
        let lines = &mut self.facts.lines;
        if lines.len() + line.len() >= limits::BATCH_BYTES {
            return Ok(Err(format!("a batch must not write more than {} MiB", limits::BATCH_BYTES >> 20)));
        }
        lines.push_str(&line);
        lines.push('\n');
        Ok(Ok(()))
    }
}

/// Returns a guest's text as one line of the log: cut to the limit, and with characters escaped that would forge
/// further lines, control a terminal or be invisible.
fn on_one_line(line: &str) -> Cow<'_, str> {
    escape_hidden(line.get(..line.floor_char_boundary(limits::LOG_LINE_BYTES)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_stays_one_short_line() {
        assert_eq!(on_one_line("a\nb\u{1b}[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        assert_eq!(on_one_line("a\u{200b}b\u{e0041}c\u{9b}2J"), "a\\u{200b}b\\u{e0041}c\\u{9b}2J");
        assert_eq!(on_one_line(&"é".repeat(4 << 10)), "é".repeat(2 << 10));
        assert_eq!(on_one_line(&format!("x{}", "é".repeat(4 << 10))).len(), (4 << 10) - 1);
    }
}
