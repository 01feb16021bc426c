//! The caller of a tool source.
//!
//! A component that calls these functions imports `caller` and needs `grant = ["caller"]`. The caller is known only while
//! a call runs. Outside a component it is the same for every test: `local`, under the profile `default`.

/// Returns the caller, as the front established it, such as `local` or `jwt:SUBJECT`.
///
/// # Errors
/// No call runs.
pub fn principal() -> Result<String, String> {
    host::principal()
}

/// Returns the name of the profile under which the caller is served.
///
/// # Errors
/// No call runs.
pub fn profile() -> Result<String, String> {
    host::profile()
}

/// Returns the identifier of the agent's session, which is a run in the ledger.
///
/// # Errors
/// No call runs.
pub fn session() -> Result<String, String> {
    host::session()
}

#[cfg(target_arch = "wasm32")]
use crate::bindings::portcullis::plugin::caller as host;

#[cfg(not(target_arch = "wasm32"))]
/// The caller that tests outside a component have.
mod host {
    use crate::Call as _;
    use crate::fake::FakeCall;

    pub(super) fn principal() -> Result<String, String> {
        Ok(call().principal())
    }

    pub(super) fn profile() -> Result<String, String> {
        Ok(call().profile())
    }

    pub(super) fn session() -> Result<String, String> {
        Ok(call().session())
    }

    fn call() -> FakeCall {
        FakeCall::new("source", "tool")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn outside_a_component_the_caller_is_that_of_a_fake_call() {
        assert_eq!((super::principal(), super::profile()), (Ok("local".into()), Ok("default".into())));
        assert_eq!(super::session().map(|session| session.len()), Ok(26));
    }
}
