//! Turns a call into the question that Cedar answers: principal, action, resource and context.
//!
//! | part | entity | parents | attributes |
//! |---|---|---|---|
//! | principal | `Client::"PRINCIPAL"` | `Profile::"NAME"` | `trust` |
//! | action of a tool | `Action::"EXPOSED NAME"` | `Action::"call_tool"` | |
//! | other actions | `Action::"get_prompt"`, `"read_resource"`, and `"use_method"` for every other method | | |
//! | resource | `Tool::"EXPOSED NAME"` | `Source::"NAME"` | `name`, `tags`, `readOnly`, `destructive`, `idempotent`, `openWorld` |
//! | | `Prompt::"EXPOSED NAME"` | `Source::"NAME"` | `name`, `tags` |
//! | | `Resource::"EXPOSED URI"` | `Source::"NAME"` | `uri`, `tags` |
//! | | `Source::"NAME"`, for every other method | | `tags` |
//!
//! `name` and `uri` are what the source itself calls the item, and the four hints are its claims, with the defaults of MCP.
//! The context has `input` (the arguments), `method` and `risk`.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy_core::ast::{
    Context, Eid, Entity, EntityType, EntityUID, EntityUIDEntry, Expr, PartialValue, Request, Unknown, Value,
};
use cedar_policy_core::entities::{Entities, NoEntitiesSchema, TCComputation};
use cedar_policy_core::evaluator::Evaluator;
use cedar_policy_core::extensions::Extensions;
use portcullis_plugin::json::{self, Json};
use portcullis_plugin::{Call, Phase, Risk, Trust};

use crate::arguments::{convert, key_in_two_cases, key_of_rounded};

/// The group of the actions of all tools.
pub(crate) const CALL_TOOL: &str = "call_tool";

const GET_PROMPT: &str = "get_prompt";
const READ_RESOURCE: &str = "read_resource";
const USE_METHOD: &str = "use_method";

/// The actions that are not named after a tool.
const ACTIONS: [&str; 4] = [CALL_TOOL, GET_PROMPT, READ_RESOURCE, USE_METHOD];

/// The types of the entities that a policy can name.
pub(crate) const TYPES: [&str; 8] = ["Client", "Profile", "Action", "Tool", "Prompt", "Resource", "Source", "Json"];

/// The names of the types, parsed once: Cedar's parser costs more than a decision.
pub(crate) struct Names {
    client: EntityType,
    profile: EntityType,
    action: EntityType,
    tool: EntityType,
    prompt: EntityType,
    resource: EntityType,
    source: EntityType,
    /// The type of values that Cedar cannot represent.
    json: EntityType,
}

/// A call as Cedar sees it.
pub(crate) struct Question {
    pub(crate) principal: Member,
    pub(crate) action: Member,
    pub(crate) resource: Member,
    context: Context,
    entities: Entities,
    /// The reason to deny the call whatever the policies say: it could be understood in another way than they do. A
    /// code and a message.
    pub(crate) ambiguity: Option<(&'static str, String)>,
}

/// An entity and the only one that it is in, which is in no other.
pub(crate) struct Member {
    pub(crate) uid: EntityUID,
    parent: Option<EntityUID>,
}

impl Names {
    pub(crate) fn new() -> Result<Self, String> {
        let [client, profile, action, tool, prompt, resource, source, json] =
            TYPES.map(|name| EntityType::from_str(name).map_err(|error| format!("the type {name}: {error}")));
        Ok(Self {
            client: client?,
            profile: profile?,
            action: action?,
            tool: tool?,
            prompt: prompt?,
            resource: resource?,
            source: source?,
            json: json?,
        })
    }

    /// Describes a call to policies that read attributes of the folded names `read`. In the phase `list` the arguments are
    /// unknown.
    pub(crate) fn question(&self, call: &impl Call, phase: Phase, read: &HashSet<String>) -> Result<Question, String> {
        let (method, exposed) = (call.method(), call.exposed_name());
        let source = uid(&self.source, &call.source());
        let (action, resource) = match method.as_str() {
            "tools/call" => (exposed.as_str(), Some(&self.tool)),
            "prompts/get" => (GET_PROMPT, Some(&self.prompt)),
            "resources/read" => (READ_RESOURCE, Some(&self.resource)),
            _ => (USE_METHOD, None),
        };
        let is_tool = method == "tools/call";
        let principal =
            Member { uid: uid(&self.client, &call.principal()), parent: Some(uid(&self.profile, &call.profile())) };
        let action = Member { uid: uid(&self.action, action), parent: is_tool.then(|| uid(&self.action, CALL_TOOL)) };
        let resource = match resource {
            Some(kind) => Member { uid: uid(kind, &exposed), parent: Some(source) },
            None => Member { uid: source, parent: None },
        };
        let entities = [
            entity(&principal, [("trust", trust(call.trust()).into())]),
            entity(&action, []),
            entity(&resource, attributes(call, &method)?),
        ];
        let (context, doubt) = self.context(call, (phase, &method), read)?;
        let mut question = Question::new([principal, action, resource], entities, context)?;
        // A policy about that action would be about the tool as well.
        question.ambiguity = if is_tool && ACTIONS.contains(&exposed.as_str()) {
            Some(("ambiguous-name", format!("the name {exposed} is also the name of an action; rename the tool")))
        } else {
            doubt.map(|message| ("arguments-ambiguous", message))
        };
        Ok(question)
    }

    /// Returns a question about an invented call without attributes and arguments.
    pub(crate) fn invented(&self) -> Result<Question, String> {
        let members = [&self.client, &self.action, &self.tool].map(|kind| Member { uid: uid(kind, ""), parent: None });
        let entities = members.each_ref().map(|member| entity(member, []));
        Question::new(members, entities, Context::empty())
    }

    /// Returns the context, and what a source may read differently in arguments whose names are in `read`.
    fn context(
        &self,
        call: &impl Call,
        (phase, method): (Phase, &str),
        read: &HashSet<String>,
    ) -> Result<(Context, Option<String>), String> {
        let risk = if call.risk() == Risk::Harmless { "harmless" } else { "risky" };
        if phase == Phase::List {
            let input = Expr::unknown(Unknown::new_untyped("input"));
            let pairs = [("input", input), ("method", Expr::val(method)), ("risk", Expr::val(risk))];
            let pairs = pairs.map(|(name, value)| (name.into(), value)).into();
            return Ok((Context::RestrictedResidual(Arc::new(pairs)), None));
        }
        let arguments = call.arguments();
        let arguments = Json::parse(&arguments).map_err(|error| format!("arguments: {error}"))?;
        let json::Value::Object(_) = arguments.value else { return Err("arguments: not an object".into()) };
        let pairs =
            [("input", convert(&arguments.value, &self.json)), ("method", method.into()), ("risk", risk.into())];
        let context = Context::Value(Arc::new(pairs.map(|(name, value)| (name.into(), value)).into()));
        let in_two_cases = key_in_two_cases(&arguments.value, read).map(|name| {
            format!("the arguments have two keys `{name}` that differ only in case, and the source may read either")
        });
        let doubt = in_two_cases.or_else(|| {
            let name = key_of_rounded(&arguments.value, read)?;
            Some(format!("the argument `{name}` has a number that the source may round to another one"))
        });
        Ok((context, doubt))
    }
}

impl Question {
    fn new(members: [Member; 3], entities: [Entity; 3], context: Context) -> Result<Self, String> {
        let [principal, action, resource] = members;
        // No entity is in one that is in another.
        let closed = TCComputation::AssumeAlreadyComputed;
        let entities =
            Entities::from_entities(entities, None::<&NoEntitiesSchema>, closed, Extensions::all_available())
                .map_err(|_| "the entities contradict each other")?;
        Ok(Self { principal, action, resource, context, entities, ambiguity: None })
    }

    /// Returns what evaluates expressions for this call.
    pub(crate) fn evaluator(&self) -> Evaluator<'_> {
        let [principal, action, resource] = [&self.principal, &self.action, &self.resource]
            .map(|member| EntityUIDEntry::known(member.uid.clone(), None));
        let request = Request::new_unchecked(principal, action, resource, Some(self.context.clone()));
        Evaluator::new(request, &self.entities, Extensions::all_available())
    }
}

impl Member {
    /// Reports what `in` means: whether this is `other` or is in it.
    pub(crate) fn is_in(&self, other: &EntityUID) -> bool {
        self.uid == *other || self.parent.as_ref() == Some(other)
    }
}

/// Returns the attributes of the entity that the call is about.
fn attributes(call: &impl Call, method: &str) -> Result<Vec<(&'static str, Value)>, String> {
    let mut attributes = vec![("tags", call.tags().into())];
    match method {
        "tools/call" => {
            attributes.push(("name", call.tool().into()));
            let annotations = call.annotations();
            let annotations = Json::parse(&annotations).map_err(|error| format!("annotations: {error}"))?;
            // The defaults of MCP for a hint that is missing, or is not a boolean.
            for (attribute, hint, default) in [
                ("readOnly", "readOnlyHint", false),
                ("destructive", "destructiveHint", true),
                ("idempotent", "idempotentHint", false),
                ("openWorld", "openWorldHint", true),
            ] {
                let given = match annotations.get(hint).map(|hint| &hint.value) {
                    Some(json::Value::Bool(given)) => *given,
                    _ => default,
                };
                attributes.push((attribute, given.into()));
            }
        }
        "prompts/get" => attributes.push(("name", call.tool().into())),
        "resources/read" => attributes.push(("uri", call.tool().into())),
        _ => {}
    }
    Ok(attributes)
}

fn uid(kind: &EntityType, id: &str) -> EntityUID {
    EntityUID::from_components(kind.clone(), Eid::new(id), None)
}

fn entity(member: &Member, attributes: impl IntoIterator<Item = (&'static str, Value)>) -> Entity {
    let attributes = attributes.into_iter().map(|(name, value)| (name.into(), PartialValue::Value(value)));
    let parents = member.parent.iter().cloned().collect();
    Entity::new_with_attr_partial_value(member.uid.clone(), attributes, HashSet::new(), parents, [])
}

fn trust(trust: Trust) -> &'static str {
    match trust {
        Trust::Sandbox => "sandbox",
        Trust::Low => "low",
        Trust::Medium => "medium",
        Trust::High => "high",
    }
}
