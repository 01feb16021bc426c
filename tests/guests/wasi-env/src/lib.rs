//! A policy that reads the environment, which no policy may do. Built for wasm32-wasip2.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Concern, Guest, Verdict};

struct WasiEnv;

impl Guest for WasiEnv {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(_: Call) -> Result<Verdict, String> {
        Ok(Verdict::Ask(Concern { code: "home".into(), message: std::env::var("HOME").unwrap_or_default() }))
    }
}

export!(WasiEnv);
