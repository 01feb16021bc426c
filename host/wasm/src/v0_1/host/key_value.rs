//! The key-value store of the caller's profile, as a guest sees it.

use wasmtime::Result;

use super::GuestState;
use crate::key_value::KeyValueStore;

pub(crate) mod imports {
    wasmtime::component::bindgen!({
        path: "wit",
        inline: "
            package portcullis:host;
            world kept {
                import portcullis:plugin/key-value@0.1.0;
            }
        ",
        world: "portcullis:host/kept",
        imports: { default: async | trappable },
        require_store_data_send: true,
    });
}

pub(super) use imports::portcullis::plugin::key_value;

type StoreResult<T> = std::result::Result<T, String>;

impl GuestState {
    /// Returns the store of the caller's profile, or an error for the guest if no call is running.
    fn store_of_caller(&mut self) -> Result<StoreResult<KeyValueStore>> {
        self.host_call()?;
        Ok(self.facts.kept.clone().ok_or_else(|| "the store is available only while a call is running".to_owned()))
    }
}

impl key_value::Host for GuestState {
    async fn get(&mut self, key: String) -> Result<StoreResult<Option<Vec<u8>>>> {
        match self.store_of_caller()? {
            Ok(store) => Ok(store.get(key).await),
            Err(why) => Ok(Err(why)),
        }
    }

    async fn scan(&mut self, prefix: String, after: String, limit: u32) -> Result<StoreResult<Vec<(String, Vec<u8>)>>> {
        match self.store_of_caller()? {
            Ok(store) => Ok(store.scan(prefix, after, limit).await),
            Err(why) => Ok(Err(why)),
        }
    }

    async fn write(&mut self, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<StoreResult<()>> {
        match self.store_of_caller()? {
            Ok(store) => Ok(store.write(changes).await),
            Err(why) => Ok(Err(why)),
        }
    }
}
