//! A policy that asks before a call changes or discloses something outside its source, if what the session has seen
//! speaks against it. Every other call runs.
//!
//! ```toml
//! instructions = "any"                   # "any" or "off": whether text that reads like an instruction is a reason to ask
//! untrusted    = "any"                   # "any", "traced" or "off": when untrusted content is a reason to ask
//! private      = "traced"                # "any", "traced" or "off": when private content is a reason to ask
//! untrusted-labels = ["untrusted"]       # the labels of content that strangers may have written
//! private-labels   = ["private"]         # the labels of content that strangers must not read
//! ```
//!
//! | rule | the call | asks if |
//! |---|---|---|
//! | 1 | may change something (`write`) or disclose something (`network`) | the session has seen text that reads like an instruction to a model ("any") |
//! | 2 | may change something, or, where the session has seen private content, may disclose something | the session has seen untrusted content ("any"), or the arguments hold text of it ("traced") |
//! | 3 | may disclose something, or change something at another source than the text came from | the arguments hold text of private content ("traced"), or the session has seen any ("any") |
//!
//! A call without effects passes: its source's cell can neither write nor reach a network. If the broker could not
//! trace everything that the session saw, or a person has refused a call of it, arguments count as holding text of all of
//! that.

use portcullis_plugin::{Call, Flow, FlowPolicy, INSTRUCTIONS, Origin, PRIVATE, Phase, UNTRUSTED, Verdict, settings};
use serde::Deserialize;

/// The most results that a reason names.
const MAX_NAMED: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlowRules {
    #[serde(default)]
    instructions: Instructions,
    #[serde(default = "any")]
    untrusted: When,
    #[serde(default = "traced")]
    private: When,
    #[serde(default = "untrusted")]
    untrusted_labels: Vec<String>,
    #[serde(default = "private")]
    private_labels: Vec<String>,
}

/// The choice whether text that reads like an instruction to a model is a reason to ask.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Instructions {
    #[default]
    Any,
    Off,
}

/// The content that is a reason to ask.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum When {
    /// Any that the session has seen.
    Any,
    /// Content whose text the arguments hold.
    Traced,
    /// None.
    Off,
}

fn any() -> When {
    When::Any
}

fn traced() -> When {
    When::Traced
}

fn untrusted() -> Vec<String> {
    vec![UNTRUSTED.to_owned()]
}

fn private() -> Vec<String> {
    vec![PRIVATE.to_owned()]
}

impl FlowPolicy for FlowRules {
    fn configure(settings: &str) -> Result<Self, String> {
        let rules: Self = settings::parse(settings)?;
        for (key, labels) in [("untrusted-labels", &rules.untrusted_labels), ("private-labels", &rules.private_labels)]
        {
            if labels.is_empty() {
                let switch = key.trim_end_matches("-labels");
                return Err(format!(
                    "settings.{key}: no label is named; to turn the rule off, write `{switch} = \"off\"`"
                ));
            }
        }
        if rules.untrusted_labels.iter().any(|label| label == INSTRUCTIONS) {
            return Err(format!(
                "settings.untrusted-labels: {INSTRUCTIONS:?} has a rule of its own, which asks unless it is turned off: \
                 remove the label, and write `untrusted = \"off\"` if nothing else is a reason to ask"
            ));
        }
        if (rules.instructions, rules.untrusted, rules.private) == (Instructions::Off, When::Off, When::Off) {
            return Err(
                "settings: `instructions`, `untrusted` and `private` are all \"off\", so nothing would be asked; \
                        remove one of them, or the policy"
                    .to_owned(),
            );
        }
        Ok(rules)
    }

    fn check(&self, call: &impl Call, flow: &impl Flow) -> Result<Verdict, String> {
        // A result can no longer be asked about, and a listed item has no arguments.
        if matches!(call.phase(), Phase::Result | Phase::List) {
            return Ok(Verdict::Pass);
        }
        let effects = flow.effects();
        let seen = flow.labels();
        if effects.is_empty() || seen.is_empty() {
            return Ok(Verdict::Pass);
        }
        let untrusted = self.untrusted != When::Off && any_of(&seen, &self.untrusted_labels);
        let private = self.private != When::Off && any_of(&seen, &self.private_labels);
        let judged = Judged {
            // An effect that this version does not know is the most dangerous one.
            discloses: effects.iter().any(|effect| effect != "write"),
            changes: effects.iter().any(|effect| effect != "network"),
            traced: flow.traced(),
            origins: if untrusted || private { flow.origins() } else { Vec::new() },
            source: call.source(),
            seen,
        };
        let reasons = [
            (INSTRUCTIONS, self.instructions(&judged)),
            (UNTRUSTED, untrusted.then(|| self.untrusted(&judged)).flatten()),
            (PRIVATE, private.then(|| self.private(&judged)).flatten()),
        ];
        let reasons: Vec<_> = reasons.into_iter().filter_map(|(rule, reason)| Some((rule, reason?))).collect();
        if reasons.is_empty() {
            return Ok(Verdict::Pass);
        }
        let (rules, reasons): (Vec<_>, Vec<_>) = reasons.into_iter().unzip();
        Ok(Verdict::ask(&rules.join("-and-"), reasons.join("; and ")))
    }
}

/// The facts about a call that has an effect.
struct Judged {
    discloses: bool,
    changes: bool,
    traced: bool,
    origins: Vec<Origin>,
    source: String,
    seen: Vec<String>,
}

impl FlowRules {
    /// Returns why text that reads like an instruction is a reason to ask.
    fn instructions(&self, call: &Judged) -> Option<String> {
        if self.instructions == Instructions::Off || !call.seen.iter().any(|label| label == INSTRUCTIONS) {
            return None;
        }
        let effect = if call.changes { "change" } else { "disclose" };
        Some(format!(
            "the session has seen text that reads like an instruction to a model, and the call may {effect} something"
        ))
    }

    /// Returns why untrusted content, which the session has seen, is a reason to ask.
    fn untrusted(&self, call: &Judged) -> Option<String> {
        let effect = match (call.changes, call.discloses && any_of(&call.seen, &self.private_labels)) {
            (true, _) => "the call may change something",
            (false, true) => "the call may disclose what the session has seen",
            (false, false) => return None,
        };
        let from = call.from(&self.untrusted_labels);
        let why = match (from.is_empty(), call.traced, self.untrusted) {
            (false, ..) => format!("{}, where strangers may have written it", text_from(&from)),
            (true, false, _) => untraceable("untrusted content"),
            (true, true, When::Any) => "the session has seen content that strangers may have written".to_owned(),
            (true, true, _) => return None,
        };
        Some(format!("{why}, and {effect}"))
    }

    /// Returns why private content, which the session has seen, is a reason to ask.
    fn private(&self, call: &Judged) -> Option<String> {
        let mut from = call.from(&self.private_labels);
        if !call.discloses {
            // Text that goes back to its own source is disclosed to nobody.
            from.retain(|origin| origin.source != call.source);
        }
        let effect = if call.discloses { "the call may disclose it" } else { "the call writes it to another place" };
        match (from.is_empty(), call.traced, self.private) {
            (false, ..) => Some(format!("{}, which is private, and {effect}", text_from(&from))),
            (true, false, _) => Some(format!("{}, and {effect}", untraceable("private content"))),
            (true, true, When::Any) => {
                call.discloses.then(|| "the session has seen private content, and the call may disclose it".to_owned())
            }
            (true, true, _) => None,
        }
    }
}

impl Judged {
    /// Returns the results with one of these labels that the arguments hold text of.
    fn from(&self, labels: &[String]) -> Vec<&Origin> {
        self.origins.iter().filter(|origin| origin.labels.iter().any(|label| labels.contains(label))).collect()
    }
}

fn any_of(seen: &[String], labels: &[String]) -> bool {
    seen.iter().any(|label| labels.contains(label))
}

/// Says where text of the arguments came from, as in "text in `/url` came from `web__fetch`, 2 calls ago".
fn text_from(origins: &[&Origin]) -> String {
    let named = origins.iter().take(MAX_NAMED).map(|origin| {
        let place = if origin.pointer.is_empty() { String::new() } else { format!(" in `{}`", origin.pointer) };
        let calls = if origin.calls_ago == 1 { "call" } else { "calls" };
        format!("text{place} came from `{}`, {} {calls} ago", origin.exposed_name, origin.calls_ago)
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    let more = origins.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        text.push_str(&format!(", and from {more} more"));
    }
    text
}

fn untraceable(content: &str) -> String {
    format!(
        "a person has refused a call of this session, or it has seen more than can be traced, so the arguments count as \
         {content}"
    )
}

portcullis_plugin::export_flow_policy!(FlowRules);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
