//! The facts that a policy may query about the session of its call.

use portcullis_core::call::BudgetLimit;
use wasmtime::Result;

use super::GuestState;
use super::imports::portcullis::plugin::session;

impl session::Host for GuestState {
    fn calls(&mut self) -> Result<u32> {
        Ok(self.view("session.calls")?.call.earlier.of_session)
    }

    fn calls_of_item(&mut self) -> Result<u32> {
        Ok(self.view("session.calls-of-item")?.call.earlier.of_item)
    }

    fn budget(&mut self) -> Result<Vec<session::BudgetLimit>> {
        let limit = |limit: &BudgetLimit| {
            let BudgetLimit { name, amount, left, .. } = limit.clone();
            session::BudgetLimit { name, amount, left }
        };
        Ok(self.view("session.budget")?.budget().iter().map(limit).collect())
    }
}
