//! A policy that consists of lists of rules. `deny` takes precedence over `ask`, and `ask` over `allow`.
//!
//! ```toml
//! deny  = ["*__delete_*", { source = "files", arguments = { path = { not = "/srv/*" } }, message = "stay under /srv" }]
//! ask   = ["files__write_*"]
//! allow = ["files__*", { source = "git", tool = "git_*" }]
//! default = "deny"                       # "pass", "ask" or "deny": what happens to all other calls
//! ```
//!
//! A rule is a glob over the exposed name, or a table in which every given key must match:
//!
//! | key | is compared with |
//! |---|---|
//! | `source`, `method` | the source's name; the MCP method |
//! | `tool` | the exposed name or the source's own name for the tool; in an `allow` rule without `source` only the exposed name, because a source chooses its own names |
//! | `arguments` | a table from paths in the arguments to the values that must be there |
//! | `when` | a condition in CEL that must hold; one that cannot be evaluated counts against the call (see `condition`) |
//! | `message` | nothing: it is the text that the agent or the person reads |
//!
//! Without `default`, the remaining calls pass if there is no `allow` list, and are denied if there is one.
//!
//! When tools are listed there is no call yet. Therefore a deny rule about `arguments` or `method`, or whose
//! condition names them, does not hide a tool, and an allow rule about them lets it be listed.

mod arguments;
mod condition;
mod rule;

use condition::Failure;
use portcullis_plugin::json::Json;
use portcullis_plugin::{Call, Phase, Policy, Verdict, settings};
use rule::{Reading, Rule, Subject};
use serde::Deserialize;

struct Rules {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
    default: Rest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    deny: Vec<Rule>,
    #[serde(default)]
    ask: Vec<Rule>,
    #[serde(default)]
    allow: Vec<Rule>,
    default: Option<Rest>,
}

/// The verdict on a call that no rule matches.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Rest {
    Pass,
    Ask,
    Deny,
}

impl Policy for Rules {
    fn configure(settings: &str) -> Result<Self, String> {
        let Settings { deny, ask, allow, default } = settings::parse(settings)?;
        if !allow.is_empty() && default == Some(Rest::Pass) {
            return Err("settings.default: \"pass\" makes `allow` mean nothing; leave out one of them".into());
        }
        let default = default.unwrap_or(if allow.is_empty() { Rest::Pass } else { Rest::Deny });
        Ok(Self { deny, ask, allow, default })
    }

    fn check(&self, call: &impl Call) -> Result<Verdict, String> {
        if call.phase() == Phase::List { Ok(self.list(call)) } else { self.judge(call) }
    }
}

impl Rules {
    fn judge(&self, call: &impl Call) -> Result<Verdict, String> {
        let named = Subject::new(call, None);
        // Arguments can be large, and most rules look only at names.
        let mut rules = self.deny.iter().chain(&self.ask).chain(&self.allow);
        let text = if rules.any(|rule| rule.reads_arguments(&named)) { call.arguments() } else { "{}".to_owned() };
        let arguments = Json::parse(&text).map_err(|error| format!("arguments: {error}"))?;
        let subject = named.with_arguments(&arguments);
        for rule in &self.deny {
            match rule.matches(&subject, Reading::Against) {
                Ok(false) => {}
                Ok(true) => return Ok(denied_by(rule)),
                Err(failure) => return Ok(Verdict::deny("condition-error", unevaluated(rule, "denied", &failure))),
            }
        }
        for rule in &self.ask {
            match rule.matches(&subject, Reading::Against) {
                Ok(false) => {}
                Ok(true) => return Ok(Verdict::ask("rule", rule.message("asked for"))),
                Err(failure) => {
                    return Ok(Verdict::ask("condition-error", unevaluated(rule, "asked for", &failure)));
                }
            }
        }
        if self.allow.iter().any(|rule| rule.matches(&subject, Reading::For) == Ok(true)) {
            return Ok(Verdict::Pass);
        }
        Ok(match self.default {
            Rest::Pass => Verdict::Pass,
            Rest::Ask => Verdict::ask("no-rule", format!("no rule covers {}", call.exposed_name())),
            Rest::Deny => not_allowed(call),
        })
    }

    /// Returns the verdict on a tool that is listed: it is hidden if its calls would be denied with any arguments.
    fn list(&self, call: &impl Call) -> Verdict {
        let subject = Subject::new(call, None);
        // A condition that cannot be evaluated now counts as it does when the item is called.
        let against = |rule: &&Rule| rule.matches(&subject, Reading::Against) != Ok(false);
        if let Some(rule) = self.deny.iter().filter(|rule| !rule.needs_a_call()).find(against) {
            return denied_by(rule);
        }
        let shown = self.default != Rest::Deny
            || self.ask.iter().any(|rule| against(&rule))
            || self.allow.iter().any(|rule| rule.matches(&subject, Reading::For) == Ok(true));
        if shown { Verdict::Pass } else { not_allowed(call) }
    }
}

fn denied_by(rule: &Rule) -> Verdict {
    Verdict::deny("rule", rule.message("denied"))
}

/// Says that a rule counts because nobody knows whether its condition holds.
fn unevaluated(rule: &Rule, done: &str, failure: &Failure) -> String {
    format!("{} (its condition cannot be evaluated for this call: {failure})", rule.message(done))
}

fn not_allowed(call: &impl Call) -> Verdict {
    Verdict::deny("not-allowed", format!("no rule allows {}", call.exposed_name()))
}

portcullis_plugin::export_policy!(Rules);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
