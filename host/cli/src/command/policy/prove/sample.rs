//! The calls that a search tries: each argument takes the values at which policies can change their mind, drawn from
//! the constants in both of them and from the tools' input schemas.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis::call::{Call, CallView, Caller, Params, Phase, Risk, SessionId, TrustLevel};
use portcullis::config::Config;
use portcullis::item::{Item, ItemKind};
use portcullis::principal::Principal;
use portcullis::protocol::{Json, Method};
use serde_json::{Value, json};

use super::constants::Constants;
use super::values::{ArgumentValues, DeclaredMember, NONE};

/// All calls of one item that the search can try.
pub(super) struct Space {
    item: Arc<Item>,
    method: Method,
    callers: Vec<Arc<Caller>>,
    risks: Vec<Risk>,
    /// The values of each argument; `None` if it is missing.
    arguments: Vec<(String, Vec<Option<Value>>)>,
    is_cut: bool,
}

/// One call of a space: the position of the caller, of the risk, and of each argument's value.
pub(super) type Choice = Vec<usize>;

impl Space {
    /// Returns the calls of an item.
    pub(super) fn new(item: &Arc<Item>, config: &Config, constants: &Constants) -> Self {
        let definition: Value = item.definition.read().unwrap_or_default();
        let mut arguments = Vec::new();
        let schema = definition.get("inputSchema").unwrap_or(&Value::Null);
        let values = ArgumentValues::new(constants, schema);
        if item.kind == ItemKind::Tool {
            arguments = values.members(schema, &constants.arguments);
        } else if let Some(listed) = definition.get("arguments").and_then(Value::as_array) {
            let names = listed.iter().filter_map(|argument| argument["name"].as_str());
            arguments.extend(names.map(|name| DeclaredMember {
                name: name.to_owned(),
                schema: json!({ "type": "string" }),
                named: &NONE,
                is_declared: true,
            }));
        }
        let arguments = arguments.into_iter().map(|member| {
            let of_member = values.of(&member.schema, member.named, 0).into_iter().map(Some);
            (member.name, std::iter::once(None).chain(of_member).collect())
        });
        let arguments = arguments.collect();
        let has_word = |word: &str| constants.texts.contains(word);
        let risks = if has_word("risky") || has_word("harmless") {
            vec![Risk::Risky, Risk::Harmless]
        } else {
            vec![Risk::Risky]
        };
        Self {
            item: Arc::clone(item),
            method: item.kind.use_method(),
            callers: callers(config, constants),
            risks,
            arguments,
            is_cut: values.is_cut(),
        }
    }

    /// Reports whether the schema of the item declares more than is tried.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the number of values of each part of a call.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let arguments = self.arguments.iter().map(|(_, values)| values.len());
        [self.callers.len(), self.risks.len()].into_iter().chain(arguments).collect()
    }

    /// Returns the number of calls, or the largest number there is.
    pub(super) fn size(&self) -> usize {
        self.sizes().into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns the call at this position of all.
    pub(super) fn choice(&self, mut position: usize) -> Choice {
        let digits = self.sizes().into_iter().map(|size| {
            let digit = position % size;
            position /= size;
            digit
        });
        digits.collect()
    }

    /// Returns a call as policies see it.
    pub(super) fn view(&self, choice: &[usize]) -> Option<CallView> {
        let (caller, rest) = choice.split_first()?;
        let (risk, values) = rest.split_first()?;
        let arguments = self
            .arguments
            .iter()
            .zip(values)
            .filter_map(|((name, all), chosen)| Some((name.clone(), all.get(*chosen)?.clone()?)));
        let arguments = Value::Object(arguments.collect());
        Some(view(
            &self.item,
            &self.method,
            Arc::clone(self.callers.get(*caller)?),
            *self.risks.get(*risk)?,
            &arguments,
        ))
    }
}

/// Returns a call of an item as policies see it.
pub(super) fn view(item: &Arc<Item>, method: &Method, caller: Arc<Caller>, risk: Risk, arguments: &Value) -> CallView {
    let params = match item.kind {
        ItemKind::Tool | ItemKind::Prompt => json!({ "name": item.exposed, "arguments": arguments }),
        ItemKind::Resource | ItemKind::Template => json!({ "uri": item.exposed }),
        ItemKind::Source => json!({}),
    };
    let params = Params::parse(method, Json::of(&params));
    CallView::before(&Arc::new(Call::new(method, params, &caller, Arc::clone(item), risk)), Phase::Call)
}

/// Returns a caller.
pub(super) fn caller(principal: &str, profile: &str, trust: TrustLevel) -> Option<Arc<Caller>> {
    let caller = Caller {
        principal: Principal::established(principal),
        profile: profile.parse().ok()?,
        trust,
        session: SessionId::new(),
        client: "portcullis-prove".into(),
    };
    Some(Arc::new(caller))
}

/// Returns the configured profiles with their trust levels. The first is the one that callers have by default.
pub(super) fn profiles(config: &Config) -> Vec<(&str, TrustLevel)> {
    let mut found: Vec<_> = config.profiles.iter().map(|(name, profile)| (name.as_str(), profile.trust)).collect();
    found.sort_by_key(|(name, _)| *name != "default");
    found
}

/// Returns the callers to try: under each profile, and with the names that the policies have.
fn callers(config: &Config, constants: &Constants) -> Vec<Arc<Caller>> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut add = |principal: &str, profile: &str, trust: TrustLevel| {
        // The default profile has one of the trust levels already.
        if known.insert((principal.to_owned(), profile.to_owned(), trust.as_str())) {
            found.extend(caller(principal, profile, trust));
        }
    };
    for (name, trust) in profiles(config) {
        add("local", name, trust);
        constants.texts.iter().for_each(|text| add(text, name, trust));
    }
    constants.texts.iter().for_each(|text| add("local", text, TrustLevel::Medium));
    if TrustLevel::ALL.iter().any(|level| constants.texts.contains(level.as_str())) {
        TrustLevel::ALL.into_iter().for_each(|level| add("local", "default", level));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::super::constants::tests::constants;
    use super::*;

    fn space(input: Value, constants: &Constants) -> Space {
        let definition = Json::of(&json!({ "name": "pay", "inputSchema": input }));
        let item = Item::of_source(&"shop".parse().unwrap(), &[]);
        let item = Item { kind: ItemKind::Tool, name: "pay".into(), exposed: "shop__pay".into(), definition, ..item };
        let config = Config::builder("/srv").build().unwrap();
        Space::new(&Arc::new(item), &config, constants)
    }

    fn values(space: &Space, name: &str) -> Vec<Value> {
        let (_, values) = space.arguments.iter().find(|(argument, _)| argument == name).unwrap();
        values.iter().flatten().cloned().collect()
    }

    #[test]
    fn an_argument_takes_the_values_around_each_constant_and_limit_and_can_be_missing() {
        let constants = constants(json!({ "limit": 100, "word": "high" }));
        let input = json!({ "properties": {
            "n": { "type": "integer", "maximum": 5000 }, "f": { "type": "number" }, "on": { "type": "boolean" },
            "s": { "type": "string" }, "e": { "enum": ["a", "b"] }, "l": { "type": "array", "items": { "type": "boolean" } },
            "o": { "type": "object", "properties": { "in": { "type": "boolean" } } },
        }, "required": ["n"] });
        let space = space(input, &constants);
        let has = |name: &str, expected: &[Value]| {
            let values = values(&space, name);
            assert!(expected.iter().all(|value| values.contains(value)), "{name}: {values:?}");
        };
        has(
            "n",
            &[
                json!(99),
                json!(100),
                json!(101),
                json!(4999),
                json!(5000),
                json!(5001),
                json!(0),
                json!(-1),
                json!(null),
            ],
        );
        has("f", &[json!(100.5), json!(100)]);
        has("on", &[json!(true), json!(false)]);
        has("s", &[json!(""), json!("high"), json!("highx"), json!("xhigh")]);
        has("l", &[json!([]), json!([true]), json!([false, true])]);
        has("o", &[json!({}), json!({ "in": true }), json!({ "in": false })]);
        assert_eq!(values(&space, "e"), [json!("a"), json!("b"), json!(null)]);
        assert!(space.arguments.iter().all(|(_, values)| values.contains(&None)));
    }

    #[test]
    fn arguments_that_only_policies_name_are_tried_too() {
        let constants = constants(json!({ "deny": [{ "when": "arguments.extra == 3" }] }));
        assert!(values(&space(json!({}), &constants), "extra").contains(&json!(3)));
    }

    #[test]
    fn members_that_only_policies_name_are_tried_where_they_can_stand() {
        let constants = constants(json!({
            "policies": "forbid (principal, action, resource) when { context.input has force && context.input.to has \"for\" \
                         && context.input.list[0].deep.er && context.input.free.way == 3 && (if true then context.input else {}) has odd };",
        }));
        let item = json!({ "type": "object", "properties": { "a": { "type": "boolean" } } });
        let input = json!({ "properties": {
            "to": { "type": "object", "properties": { "name": { "type": "boolean" } } },
            "list": { "type": "array", "items": item }, "free": {},
        } });
        let space = space(input, &constants);
        for (name, expected) in [
            ("force", json!(true)),
            ("odd", json!(true)),
            ("to", json!({ "name": false, "for": true })),
            ("to", json!({ "name": false, "odd": true })),
            ("list", json!([{ "a": false, "deep": { "er": true } }])),
            ("free", json!({ "way": 3 })),
        ] {
            let values = values(&space, name);
            assert!(values.contains(&expected), "{name}: {expected}: {values:?}");
        }
        // A member that is named of something calculated, and that a schema declares, is tried there.
        let constants =
            super::super::constants::tests::constants(json!({ "when": "arguments.l.all(e, e.path != '')" }));
        let declared = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        let space = self::space(json!({ "properties": { "l": { "type": "array", "items": declared } } }), &constants);
        assert!(space.arguments.iter().all(|(name, _)| name == "l"));
    }

    #[test]
    fn an_object_with_very_many_members_gets_few_values_that_are_called_a_part() {
        let constants =
            constants(json!({ "policies": "forbid (principal, action, resource) when { context.input.o.z == 3 };" }));
        let members =
            |count: usize| (0..count).map(|n| (format!("a{n}"), json!({}))).collect::<serde_json::Map<_, _>>();
        let input = |count| json!({ "properties": { "o": { "type": "object", "properties": members(count) } } });
        let large = space(input(10_000), &constants);
        let of_object = values(&large, "o");
        assert!(large.is_cut() && of_object.len() < 100_000, "{}", of_object.len());
        let cells: usize = of_object.iter().filter_map(Value::as_object).map(serde_json::Map::len).sum();
        assert!(cells < 200_000, "{cells} members");
        assert!(of_object.iter().any(|value| value["z"] == 3), "what policies name is tried all the same");
        assert!(!space(input(3), &constants).is_cut());
    }

    proptest! {
        #[test]
        fn every_position_is_another_call(first in 0_usize..500, second in 0_usize..500) {
            let constants = constants(json!({ "limit": 100, "word": "high" }));
            let space = space(json!({ "properties": { "a": { "type": "integer" }, "b": { "type": "boolean" } } }), &constants);
            let (first, second) = (first % space.size(), second % space.size());
            let view = |position| {
                let view = space.view(&space.choice(position)).unwrap();
                let caller = &view.call.caller;
                (view.call.arguments.as_str().to_owned(), caller.principal.clone(), caller.profile.clone(), caller.trust.as_str())
            };
            prop_assert_eq!(view(first) == view(second), first == second);
        }
    }
}
