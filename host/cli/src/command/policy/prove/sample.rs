//! The calls that a search tries: each argument takes the values at which policies can change their mind, drawn from the
//! constants in both of them and from the tools' input schemas.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis::call::{Call, CallView, Caller, Params, Phase, Risk, SessionId, TrustLevel};
use portcullis::config::{Config, PluginConfig};
use portcullis::item::{Item, ItemKind};
use portcullis::principal::Principal;
use portcullis::protocol::{Json, Method};
use serde_json::{Map, Value, json};

/// The deepest nesting of a schema whose parts get values of their own.
const MAX_DEPTH: usize = 4;

/// The constants that policies compare with, as far as their settings show them.
#[derive(Debug, Default)]
pub(super) struct Constants {
    pub(super) texts: BTreeSet<String>,
    pub(super) integers: BTreeSet<i64>,
    /// The names of arguments.
    names: BTreeSet<String>,
}

/// All calls of one item that the search can try.
pub(super) struct Space {
    item: Arc<Item>,
    method: Method,
    callers: Vec<Arc<Caller>>,
    risks: Vec<Risk>,
    /// The values of each argument; `None` if it is missing.
    arguments: Vec<(String, Vec<Option<Value>>)>,
}

/// One call of a space: the position of the caller, of the risk, and of each argument's value.
pub(super) type Choice = Vec<usize>;

impl Constants {
    /// Finds the constants in the settings of policies.
    pub(super) fn of(policies: &[&PluginConfig]) -> Self {
        let mut found = Self::default();
        for policy in policies {
            found.add(&policy.settings, false);
        }
        found
    }

    fn add(&mut self, value: &Value, are_arguments: bool) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.integers.extend(number.as_i64()),
            Value::Array(items) => items.iter().for_each(|item| self.add(item, are_arguments)),
            Value::Object(members) => {
                for (key, member) in members {
                    if are_arguments {
                        self.names.extend(key.split('.').next().map(str::to_owned));
                    }
                    self.add(member, key == "arguments");
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Takes in a setting: itself, and what it quotes if it is a policy or a condition in some language.
    fn add_text(&mut self, text: &str) {
        if text.len() <= 128 && !text.contains('\n') {
            self.texts.extend(instances(text));
        }
        let mut rest = text;
        while let Some(at) = rest.find(['"', '\'']) {
            let (before, quoted) = rest.split_at(at);
            self.add_plain(before);
            let quote = quoted.chars().next().unwrap_or('"');
            let inner = quoted.get(1..).unwrap_or_default();
            let Some(end) = inner.find(quote) else { break };
            let (constant, after) = inner.split_at(end);
            self.texts.extend(instances(constant));
            rest = after.get(1..).unwrap_or_default();
        }
        self.add_plain(rest);
    }

    /// Takes in the numbers, and the names of arguments, of text that is not quoted.
    fn add_plain(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        for word in words {
            self.integers.extend(word.parse::<i64>().ok());
            let mut parts = word.split('.').skip_while(|part| *part != "input" && *part != "arguments").skip(1);
            self.names.extend(parts.next().filter(|part| !part.is_empty()).map(str::to_owned));
        }
    }
}

/// Returns the texts that a pattern stands for, the shortest and a longer one; the text itself if it is none.
fn instances(pattern: &str) -> Vec<String> {
    if !pattern.contains(['*', '?']) {
        return vec![pattern.to_owned()];
    }
    ["", "x"].map(|filling| pattern.replace('*', filling).replace('?', "x")).to_vec()
}

impl Space {
    /// Returns the calls of an item.
    pub(super) fn new(item: &Arc<Item>, config: &Config, constants: &Constants) -> Self {
        let definition: Value = item.definition.read().unwrap_or_default();
        let mut arguments = Vec::new();
        if item.kind == ItemKind::Tool {
            let known = definition.pointer("/inputSchema/properties").and_then(Value::as_object);
            for (name, property) in known.into_iter().flatten() {
                arguments.push((name.clone(), property.clone()));
            }
            let further = constants.names.iter().filter(|name| known.is_none_or(|known| !known.contains_key(*name)));
            arguments.extend(further.map(|name| (name.clone(), Value::Null)));
        } else if let Some(listed) = definition.get("arguments").and_then(Value::as_array) {
            let names = listed.iter().filter_map(|argument| argument["name"].as_str());
            arguments.extend(names.map(|name| (name.to_owned(), json!({ "type": "string" }))));
        }
        let arguments = arguments.into_iter().map(|(name, schema)| {
            let mut values = vec![None];
            values.extend(values_of(&schema, constants, 0).into_iter().map(Some));
            (name, values)
        });
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
            arguments: arguments.collect(),
        }
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

/// Returns the configured profiles with their trust levels. The one that callers have unless others are given is the first.
pub(super) fn profiles(config: &Config) -> Vec<(&str, TrustLevel)> {
    let mut found: Vec<_> = config.profiles.iter().map(|(name, profile)| (name.as_str(), profile.trust)).collect();
    found.sort_by_key(|(name, _)| *name != "default");
    found
}

/// Returns the callers to try: under each profile, and with the names that the policies have.
fn callers(config: &Config, constants: &Constants) -> Vec<Arc<Caller>> {
    let mut found = Vec::new();
    let mut add = |principal: &str, profile: &str, trust| found.extend(caller(principal, profile, trust));
    for (name, trust) in profiles(config) {
        add("local", name, trust);
        constants.texts.iter().for_each(|text| add(text, name, trust));
    }
    constants.texts.iter().for_each(|text| add("local", text, TrustLevel::Medium));
    let levels = [TrustLevel::Sandbox, TrustLevel::Low, TrustLevel::Medium, TrustLevel::High];
    if levels.iter().any(|level| constants.texts.contains(level.as_str())) {
        levels.into_iter().for_each(|level| add("local", "default", level));
    }
    found
}

/// Returns the values of an argument at which policies can change their mind. An argument without a type can have any.
fn values_of(schema: &Value, constants: &Constants, depth: usize) -> Vec<Value> {
    let listed = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    let mut values: Vec<Value> = listed.cloned().collect();
    let kind = schema["type"].as_str();
    let is = |wanted: &str| kind == Some(wanted) || (kind.is_none() && values.is_empty());
    let (texts, numbers) = (is("string"), is("integer") || is("number"));
    let (booleans, arrays, objects) = (is("boolean"), kind == Some("array"), kind == Some("object"));
    if texts {
        values.extend(["", "x"].map(Value::from));
        let around = |text: &String| [text.clone(), format!("{text}x"), format!("x{text}")];
        values.extend(constants.texts.iter().flat_map(around).map(Value::from));
    }
    if numbers {
        let bounds = ["minimum", "maximum"].into_iter().filter_map(|key| schema[key].as_i64());
        let around = |n: i64| [n.saturating_sub(1), n, n.saturating_add(1)];
        let whole: BTreeSet<i64> =
            constants.integers.iter().copied().chain(bounds).chain([0]).flat_map(around).collect();
        if kind != Some("integer") {
            values.extend(constants.integers.iter().map(|n| json!(precise(*n) + 0.5)));
        }
        values.extend(whole.into_iter().map(Value::from));
    }
    if booleans {
        values.extend([false, true].map(Value::from));
    }
    if arrays && depth < MAX_DEPTH {
        let items = values_of(&schema["items"], constants, depth + 1);
        values.push(json!([]));
        values.extend(items.iter().map(|item| json!([item])));
        values.extend(items.windows(2).map(|two| json!(two)));
    }
    if objects && depth < MAX_DEPTH {
        values.extend(objects_of(schema, constants, depth));
    }
    // What a source may get, although its schema does not say so.
    values.push(Value::Null);
    let mut seen = BTreeSet::new();
    values.retain(|value| seen.insert(value.to_string()));
    values
}

/// Returns objects that differ from a first one in at most one member.
fn objects_of(schema: &Value, constants: &Constants, depth: usize) -> Vec<Value> {
    let members: Vec<(String, Vec<Value>)> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, member)| (name.clone(), values_of(member, constants, depth + 1)))
        .collect();
    let first: Map<String, Value> =
        members.iter().filter_map(|(name, values)| Some((name.clone(), values.first()?.clone()))).collect();
    let mut objects = vec![json!({}), Value::Object(first.clone())];
    for (name, values) in &members {
        for value in values {
            let mut object = first.clone();
            object.insert(name.clone(), value.clone());
            objects.push(Value::Object(object));
        }
        let mut object = first.clone();
        object.remove(name);
        objects.push(Value::Object(object));
    }
    objects
}

#[expect(clippy::cast_precision_loss, reason = "a value near a constant is as good as another one")]
fn precise(value: i64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn constants(settings: Value) -> Constants {
        let config =
            Config::builder("/srv").policy(json!({ "plugin": "builtin:rules", "settings": settings })).build().unwrap();
        Constants::of(&config.policies.iter().collect::<Vec<_>>())
    }

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
    fn constants_are_found_in_every_language_of_policies() {
        let cedar = "permit (principal in Profile::\"team\", action, resource)\n\
                     when { context.input.path like \"/srv/*\" && context.input.size > 4096 };";
        let found = constants(json!({
            "policies": cedar,
            "deny": [{ "tool": "shop__*", "arguments": { "deep.b": { "not": "/etc/*" } }, "when": "arguments.n < 7 && name != 'pay'" }],
            "limit": -3,
        }));
        for text in ["team", "/srv/", "/srv/x", "shop__", "/etc/x", "pay"] {
            assert!(found.texts.contains(text), "{text}: {found:?}");
        }
        assert_eq!(found.integers, BTreeSet::from([-3, 7, 4096]));
        assert_eq!(found.names, BTreeSet::from(["deep", "n", "path", "size"].map(str::to_owned)));
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
