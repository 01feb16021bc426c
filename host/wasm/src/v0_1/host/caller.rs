//! The caller of the running call, as a guest sees it.

use portcullis_core::call::Caller;
use wasmtime::Result;

use super::GuestState;
use super::imports::portcullis::plugin::caller::Host;

type CallerResult = std::result::Result<String, String>;

impl GuestState {
    /// Returns a fact about the caller, or an error for the guest if no call is running.
    fn of_caller(&mut self, fact: impl FnOnce(&Caller) -> String) -> Result<CallerResult> {
        self.host_call()?;
        let caller = self.facts.caller.as_deref();
        Ok(caller.map(fact).ok_or_else(|| "the caller is known only while a call is running".to_owned()))
    }
}

impl Host for GuestState {
    fn principal(&mut self) -> Result<CallerResult> {
        self.of_caller(|caller| caller.principal.to_string())
    }

    fn profile(&mut self) -> Result<CallerResult> {
        self.of_caller(|caller| caller.profile.to_string())
    }

    fn session(&mut self) -> Result<CallerResult> {
        self.of_caller(|caller| caller.session.to_string())
    }
}
