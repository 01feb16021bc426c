//! A policy that decides by policies in the [Cedar](https://www.cedarpolicy.com) language.
//!
//! ```toml
//! policies = '''
//! permit (principal, action, resource in Source::"files") when { resource.readOnly };
//!
//! @id("writes") @requireApproval("it writes a file")
//! permit (principal in Profile::"default", action == Action::"files__write_file", resource)
//! when { context.input.path like "/srv/*" };
//!
//! @id("no-keys")
//! forbid (principal, action in Action::"call_tool", resource)
//! when { context.input has path && context.input.path like "*id_rsa*" };
//! '''
//! ```
//!
//! A call is denied unless a `permit` holds, and a `forbid` that holds denies it whatever permits it. If one of the permits
//! that hold has the annotation `@requireApproval`, a person is asked.
//!
//! Cedar skips a policy that cannot be evaluated, for example because it reads an argument that the call does not have. A
//! `forbid` would then forbid nothing, and a caller could bring that about by leaving the argument out. Here such a policy
//! denies the call.
//!
//! When items are listed there are no arguments yet. An item is hidden if it would be denied with any arguments.
//!
//! With the setting `schema` (what `portcullis policy schema` prints), a policy whose types do not agree with it is refused.
//!
//! Two modules say what a policy can name: `request` the entities and the context, `arguments` the values. `policies` reads
//! the policies, and `answer` asks one of them about a call.

mod answer;
mod arguments;
mod like;
mod policies;
mod request;

use answer::{Answer, GIVES_UP};
use policies::Policies;
use portcullis_plugin::{Call, Level, Phase, Policy, Verdict, log, settings};
use request::{Names, Question};
use serde::Deserialize;

struct Cedar {
    policies: Policies,
    names: Names,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    policies: String,
    /// A schema in Cedar's syntax, with whose types the policies must agree.
    schema: Option<String>,
}

impl Policy for Cedar {
    fn configure(settings: &str) -> Result<Self, String> {
        let Settings { policies: text, schema } = settings::parse(settings)?;
        let policies = Policies::parse(&text)?;
        if let Some(schema) = schema {
            policies.validate(&text, &schema)?;
        }
        let names = Names::new()?;
        policies.warm_up(&names)?;
        Ok(Self { policies, names })
    }

    fn check(&self, call: &impl Call) -> Result<Verdict, String> {
        let phase = call.phase();
        let question = self.names.question(call, phase, self.policies.read())?;
        if let Some((code, message)) = &question.ambiguity {
            return Ok(Verdict::deny(code, message.as_str()));
        }
        Ok(if phase == Phase::List { self.list(call, &question) } else { self.judge(call, &question) })
    }
}

impl Cedar {
    fn judge(&self, call: &impl Call, question: &Question) -> Verdict {
        let (mut permits, mut forbids, mut failure) = (Vec::new(), Vec::new(), None);
        for (policy, answer) in self.policies.answers(question) {
            match answer {
                Answer::Yes if policy.is_forbid() => forbids.push(policy.to_string()),
                Answer::Yes => permits.push(policy),
                Answer::No => {}
                Answer::Failure(cause) => drop(failure.get_or_insert((policy, cause))),
                Answer::Open => drop(failure.get_or_insert((policy, GIVES_UP))),
            }
        }
        if !forbids.is_empty() {
            return Verdict::deny("forbidden", format!("forbidden by the {}", forbids.join(" and the ")));
        }
        if let Some((policy, cause)) = failure {
            return Verdict::deny("policy-error", format!("the {policy} cannot be evaluated for this call: {cause}"));
        }
        if permits.is_empty() {
            return not_permitted(call);
        }
        let approvals: Vec<&str> = permits.iter().filter_map(|policy| policy.approval()).collect();
        if !approvals.is_empty() {
            return Verdict::ask("approval-required", approvals.join("; "));
        }
        // A call that passes has no reason; `portcullis policy explain` shows this.
        let names: Vec<String> = permits.iter().map(ToString::to_string).collect();
        log(Level::Debug, format_args!("permitted by the {}", names.join(" and the ")));
        Verdict::Pass
    }

    /// Returns the verdict on an item that is listed. The arguments are unknown, so Cedar evaluates the policies as far as
    /// it can without them.
    fn list(&self, call: &impl Call, question: &Question) -> Verdict {
        let (mut may_be_permitted, mut is_forbidden) = (false, false);
        for (policy, answer) in self.policies.answers(question) {
            match answer {
                Answer::Yes if policy.is_forbid() => is_forbidden = true,
                Answer::Yes | Answer::Open => may_be_permitted |= !policy.is_forbid(),
                Answer::No => {}
                Answer::Failure(_) => {
                    let message = format!("a policy fails on every call of {}", call.exposed_name());
                    return Verdict::deny("policy-error", message);
                }
            }
        }
        if is_forbidden || !may_be_permitted { not_permitted(call) } else { Verdict::Pass }
    }
}

fn not_permitted(call: &impl Call) -> Verdict {
    Verdict::deny("not-permitted", format!("no policy permits {}", call.exposed_name()))
}

portcullis_plugin::export_policy!(Cedar);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
