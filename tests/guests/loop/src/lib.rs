//! A policy that never returns: from `configure` if the settings say so, otherwise from `check`.

wit_bindgen::generate!({ path: "../../../wit", world: "policy-plugin" });

use exports::portcullis::plugin::policy::{Call, Guest, Verdict};

struct Loop;

impl Guest for Loop {
    fn configure(settings: String) -> Result<(), String> {
        if settings.contains("configure") {
            spin();
        }
        Ok(())
    }

    fn check(_: Call) -> Result<Verdict, String> {
        spin();
        Ok(Verdict::Pass)
    }
}

fn spin() {
    let mut turns = 0u64;
    while std::hint::black_box(turns) < u64::MAX {
        turns += 1;
    }
}

export!(Loop);
