//! Bakes the settings into a plugin: makes a component whose instances start in the state that `configure` leaves.
//!
//! A plugin has no clock, no random numbers and no files, so the same component and settings always lead to the same
//! state. Therefore `configure` runs once, in an instance whose memories and globals can be read; their contents become
//! the initial contents in a second component. Each decision still gets its own instance: the settings are all that
//! instances share.
//!
//! Wizer does the work. Where it cannot (tables that change at run time, nested components, core modules that share a
//! memory, as Python's do), that is not an error: such a plugin is configured in each instance.

use std::collections::HashMap;

use portcullis_core::limits::CallLimits;
use wasmparser::{Parser, Payload, TypeRef};
use wasmtime::Store;
use wasmtime::component::{Component, Instance, Lift, WasmList};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

use super::guest::{GuestState, arm, guard};
use super::instance_pool::InstantiateError;
use super::v0_1::World;

/// The reason why no configured component could be made.
pub(crate) enum BakeError {
    /// The plugin cannot be used with these settings.
    Start(InstantiateError),
    /// The plugin may be usable, but Wizer or the engine cannot bake it.
    Unable(wasmtime::Error),
}

/// Configures the component `wasm` in `store` and returns a component that starts configured. `prepare` compiles and
/// links the component that it is given: `wasm`, with functions that read its state.
pub(crate) async fn bake<W: World>(
    mut store: Store<GuestState>,
    wasm: &[u8],
    settings: &String,
    prepare: impl FnOnce(&[u8]) -> wasmtime::Result<W::Prepared>,
) -> Result<Component, BakeError> {
    if shares_memory(wasm)? {
        // Wizer would panic, or produce something that is not a component.
        return Err(BakeError::Unable(wasmtime::format_err!("a core module imports its memory")));
    }
    let engine = store.engine().clone();
    let mut wizer = Wizer::new();
    wizer.keep_init_func(true);
    let (context, readable) = wizer.instrument_component(wasm)?;
    let pre = prepare(&readable)?;

    let armed = arm(&mut store, CallLimits::START);
    let configured = async {
        let (world, instance) = W::instantiate(&pre, &mut store).await?;
        Ok((world.configure(&mut store, settings).await?, instance))
    };
    let (configured, instance) =
        guard(armed, configured).await.map_err(|failure| BakeError::Start(InstantiateError::Failed(failure)))?;
    configured.map_err(|reason| BakeError::Start(InstantiateError::Refused(reason)))?;

    let _armed = arm(&mut store, CallLimits::START);
    // Whole memories are read here; they have their own limit.
    store.set_hostcall_fuel(usize::MAX);
    let mut state = Readable { store, instance, memories: HashMap::new(), failed: None };
    let baked = wizer.snapshot_component(&context, &mut state).await?;
    match state.failed {
        Some(error) => Err(error.into()),
        None => Ok(Component::from_binary(&engine, &baked)?),
    }
}

/// Reports whether a core module in the component imports a memory.
fn shares_memory(wasm: &[u8]) -> wasmtime::Result<bool> {
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::ImportSection(section) = payload? {
            for import in section.into_imports() {
                if matches!(import?.ty, TypeRef::Memory(_)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

impl From<wasmtime::Error> for BakeError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Unable(error)
    }
}

/// A configured instance whose state Wizer reads.
struct Readable {
    store: Store<GuestState>,
    instance: Instance,
    /// The memories read so far: Wizer asks for each twice, and reading one makes it grow.
    memories: HashMap<String, Vec<u8>>,
    /// The first error. Wizer's interface has no errors: where one occurs it gets a zero or no bytes, and the result is
    /// discarded.
    failed: Option<wasmtime::Error>,
}

impl Readable {
    async fn read<T: Lift + Send + Sync + 'static>(&mut self, interface: &str, function: &str) -> Option<T> {
        let read = self.try_read(interface, function).await;
        read.map_err(|error| _ = self.failed.get_or_insert(error)).ok()
    }

    async fn try_read<T: Lift + Send + Sync + 'static>(
        &mut self,
        interface: &str,
        function: &str,
    ) -> wasmtime::Result<T> {
        let missing = || wasmtime::format_err!("no export {interface}#{function}");
        let (instance, store) = (self.instance, &mut self.store);
        let (_, at) = instance.get_export(&mut *store, None, interface).ok_or_else(missing)?;
        let (_, at) = instance.get_export(&mut *store, Some(&at), function).ok_or_else(missing)?;
        let function = instance.get_typed_func::<(), (T,)>(&mut *store, at)?;
        Ok(function.call_async(store, ()).await?.0)
    }
}

impl ComponentInstanceState for Readable {
    async fn call_func_ret_list_u8(&mut self, interface: &str, function: &str, contents: impl FnOnce(&[u8]) + Send) {
        if !self.memories.contains_key(function) {
            let list = self.read::<WasmList<u8>>(interface, function).await;
            let memory = list.map(|list| list.as_le_slice(&self.store).to_vec());
            self.memories.insert(function.to_owned(), memory.unwrap_or_default());
        }
        contents(self.memories.get(function).map_or(&[], Vec::as_slice));
    }

    async fn call_func_ret_s32(&mut self, interface: &str, function: &str) -> i32 {
        self.read(interface, function).await.unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, interface: &str, function: &str) -> i64 {
        self.read(interface, function).await.unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, interface: &str, function: &str) -> u32 {
        self.read::<f32>(interface, function).await.unwrap_or_default().to_bits()
    }

    async fn call_func_ret_f64(&mut self, interface: &str, function: &str) -> u64 {
        self.read::<f64>(interface, function).await.unwrap_or_default().to_bits()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Returns a component with one core module that has this import from `e`.
    fn component_importing(import: &[u8]) -> Vec<u8> {
        let section = [&[1, 1, b'e', 1, b'x'], import].concat();
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        let module = [b"\0asm\x01\0\0\0\x02".as_slice(), &[length(&section)], &section].concat();
        [b"\0asm\x0d\0\x01\0\x01".as_slice(), &[length(&module)], &module].concat()
    }

    #[test]
    fn an_imported_memory_is_found_and_an_imported_table_is_not_taken_for_one() {
        let (memory, table) = ([2, 0, 1], [1, 0x70, 0, 1]);
        assert!(shares_memory(&component_importing(&memory)).unwrap());
        assert!(!shares_memory(&component_importing(&table)).unwrap());
    }
}
