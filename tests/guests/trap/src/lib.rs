//! A policy that fails in the way that the arguments name.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Concern, Guest, Verdict};

struct Trap;

impl Guest for Trap {
    fn configure(_: String) -> Result<(), String> {
        Ok(())
    }

    fn check(call: Call) -> Result<Verdict, String> {
        let arguments = call.arguments();
        if arguments.contains("panic") {
            panic!("told to");
        }
        if arguments.contains("recurse") {
            return Ok(if descend(1) == 0 { Verdict::Pass } else { Verdict::Ask(Concern { code: "deep".into(), message: String::new() }) });
        }
        if arguments.contains("chatter") {
            loop {
                std::hint::black_box(call.id());
            }
        }
        Ok(Verdict::Pass)
    }
}

#[allow(unconditional_recursion)]
fn descend(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    descend(std::hint::black_box(depth + 1)) + frame[(depth % 64) as usize]
}

export!(Trap);
