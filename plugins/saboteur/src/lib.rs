//! A policy that fails on purpose, for drills: what happens to your calls when a plugin breaks? (They are denied.)
//!
//! ```toml
//! loop = ["calc__multiply"]   # globs over the exposed name; for these calls it never answers
//! trap = ["calc__divide"]     # for these it panics
//! fail = ["*__delete_*"]      # for these it returns an error
//! ```
//!
//! Calls that no glob matches pass.

use portcullis_plugin::{Call, NameGlob, Phase, Policy, Verdict, settings};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saboteur {
    #[serde(default, rename = "loop")]
    looping: Vec<NameGlob>,
    #[serde(default)]
    trap: Vec<NameGlob>,
    #[serde(default)]
    fail: Vec<NameGlob>,
}

/// The way in which a call makes the plugin fail.
#[derive(Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    Loop,
    Trap,
    Fail,
}

impl Saboteur {
    fn plan(&self, tool: &str, phase: Phase) -> Sabotage {
        let named = |globs: &[NameGlob]| globs.iter().any(|glob| glob.matches(tool));
        match phase {
            // A failure in the list phase would hide the tool, and there would be nothing to call.
            Phase::List => Sabotage::None,
            _ if named(&self.looping) => Sabotage::Loop,
            _ if named(&self.trap) => Sabotage::Trap,
            _ if named(&self.fail) => Sabotage::Fail,
            _ => Sabotage::None,
        }
    }
}

impl Policy for Saboteur {
    fn configure(settings: &str) -> Result<Self, String> {
        settings::parse(settings)
    }

    fn check(&self, call: &impl Call) -> Result<Verdict, String> {
        match self.plan(&call.exposed_name(), call.phase()) {
            Sabotage::None => Ok(Verdict::Pass),
            Sabotage::Loop => loop {
                std::hint::spin_loop();
            },
            #[expect(clippy::panic, reason = "this is what a drill asks for")]
            Sabotage::Trap => panic!("told to panic"),
            Sabotage::Fail => Err("told to fail".to_owned()),
        }
    }
}

portcullis_plugin::export_policy!(Saboteur);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_glob_breaks_its_calls_and_no_listing() {
        let settings = r#"{"loop":["a__x"],"trap":["a__y"],"fail":["*__z"]}"#;
        let saboteur = Saboteur::configure(settings).unwrap();
        assert_eq!(saboteur.plan("a__x", Phase::Call), Sabotage::Loop);
        assert_eq!(saboteur.plan("a__x", Phase::List), Sabotage::None);
        assert_eq!(saboteur.plan("a__y", Phase::Result), Sabotage::Trap);
        assert_eq!(saboteur.plan("b__z", Phase::Call), Sabotage::Fail);
        assert_eq!(saboteur.plan("a__w", Phase::Call), Sabotage::None);
    }
}
