//! An approval plugin that uses the first earlier answer, refuses grave calls whose arguments contain `rm`, and asks a
//! person about everything else.

wit_bindgen::generate!({ path: "../../../wit", world: "approval-plugin" });

use exports::portcullis::plugin::approval::{Ask, Call, Denial, Guest, Offer, Scope, Settlement};

struct Settle;

impl Guest for Settle {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn settle(call: Call, ask: Ask) -> Result<Settlement, String> {
        if let Some(grant) = ask.grants().first().filter(|grant| grant.age() < 60) {
            return Ok(Settlement::Remembered(grant.id()));
        }
        if ask.grave() && call.arguments().contains("rm") {
            let reasons: Vec<_> = ask.reasons().into_iter().map(|why| format!("{}: {}", why.code, why.message)).collect();
            return Ok(Settlement::Refuse(Denial { code: "grave".into(), message: reasons.join("; ") }));
        }
        Ok(Settlement::Question(Offer { scopes: vec![Scope::Once, Scope::Session], valid_for: 900, uses: 3 }))
    }
}

export!(Settle);
