//! A policy that allocates memory until it is stopped.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Guest, Verdict};

struct Grow;

impl Guest for Grow {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(_: Call) -> Result<Verdict, String> {
        let mut kept = Vec::new();
        loop {
            // The memory is not touched, so that a slow machine does not make the guest meet its deadline first.
            kept.push(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
        }
    }
}

export!(Grow);
