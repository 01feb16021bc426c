//! Turns a call into the question that Cedar answers: who does what with what, and under which circumstances.
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

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicySet, Request,
    RestrictedExpression as Expression,
};
use portcullis_plugin::json::{Json, Value};
use portcullis_plugin::{Call, Phase, Risk, Trust};

use crate::arguments::convert;

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
    client: EntityTypeName,
    profile: EntityTypeName,
    action: EntityTypeName,
    tool: EntityTypeName,
    prompt: EntityTypeName,
    resource: EntityTypeName,
    source: EntityTypeName,
    /// The type of values that Cedar cannot represent.
    json: EntityTypeName,
}

/// A call as Cedar sees it.
pub(crate) struct Question {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
    /// True if the tool is exposed under the name of one of [`ACTIONS`], so that a policy about that action would be about
    /// the tool as well.
    pub(crate) is_ambiguous: bool,
}

impl Names {
    pub(crate) fn new() -> Result<Self, String> {
        let [client, profile, action, tool, prompt, resource, source, json] =
            TYPES.map(|name| EntityTypeName::from_str(name).map_err(|error| format!("the type {name}: {error}")));
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

    /// Evaluates an invented call. Cedar makes tables when it first evaluates something, which takes longer than a decision;
    /// made here, they are part of the state from which every decision starts.
    pub(crate) fn warm_up(&self, policies: &PolicySet) -> Result<(), String> {
        let impossible = "an invented call cannot be represented";
        let host = Expression::new_ip("127.0.0.1");
        let context = Context::from_pairs([("host".to_owned(), host)]).map_err(|_| impossible)?;
        let [principal, action, resource] = [&self.client, &self.action, &self.tool].map(|kind| uid(kind, ""));
        let entities = [entity(principal.clone(), HashMap::new(), Some(action.clone()))?];
        let entities = Entities::from_entities(entities, None).map_err(|_| impossible)?;
        let request = Request::new(principal, action, resource, context, None).map_err(|_| impossible)?;
        Authorizer::new().is_authorized(&request, policies, &entities);
        Ok(())
    }

    /// Describes a call. In the phase `list` the arguments are unknown.
    pub(crate) fn question(&self, call: &dyn Call) -> Result<Question, String> {
        let (method, exposed) = (call.method(), call.exposed_name());
        let is_tool = method == "tools/call";
        let action = match method.as_str() {
            "tools/call" => exposed.as_str(),
            "prompts/get" => GET_PROMPT,
            "resources/read" => READ_RESOURCE,
            _ => USE_METHOD,
        };
        let principal = uid(&self.client, &call.principal());
        let profile = uid(&self.profile, &call.profile());
        let action = uid(&self.action, action);
        let tools = uid(&self.action, CALL_TOOL);
        let source = uid(&self.source, &call.source());
        let resource = match method.as_str() {
            "tools/call" => uid(&self.tool, &exposed),
            "prompts/get" => uid(&self.prompt, &exposed),
            "resources/read" => uid(&self.resource, &exposed),
            _ => source.clone(),
        };

        let trust = HashMap::from([("trust".to_owned(), text(trust(call.trust())))]);
        let mut entities = vec![
            entity(principal.clone(), trust, Some(profile))?,
            entity(action.clone(), HashMap::new(), is_tool.then_some(tools))?,
        ];
        let is_source = resource == source;
        entities.push(entity(resource.clone(), attributes(call, &method)?, (!is_source).then_some(source))?);
        let entities = Entities::from_entities(entities, None).map_err(|_| "the entities contradict each other")?;

        let context = [
            ("input".to_owned(), self.input(call)?),
            ("method".to_owned(), text(&method)),
            ("risk".to_owned(), text(if call.risk() == Risk::Harmless { "harmless" } else { "risky" })),
        ];
        let context = Context::from_pairs(context).map_err(|_| "the arguments cannot be represented")?;
        let request =
            Request::new(principal, action, resource, context, None).map_err(|_| "the call cannot be represented")?;
        Ok(Question { request, entities, is_ambiguous: is_tool && ACTIONS.contains(&exposed.as_str()) })
    }

    fn input(&self, call: &dyn Call) -> Result<Expression, String> {
        if call.phase() == Phase::List {
            return Ok(Expression::new_unknown("input"));
        }
        let arguments = call.arguments();
        let arguments = Json::parse(&arguments).map_err(|error| format!("arguments: {error}"))?;
        match arguments.value {
            Value::Object(_) => convert(&arguments.value, &self.json),
            _ => Err("arguments: not an object".into()),
        }
    }
}

/// Returns the attributes of the entity that the call is about.
fn attributes(call: &dyn Call, method: &str) -> Result<HashMap<String, Expression>, String> {
    let tags = Expression::new_set(call.tags().iter().map(|tag| text(tag)));
    let mut attributes = HashMap::from([("tags".to_owned(), tags)]);
    match method {
        "tools/call" => {
            attributes.insert("name".into(), text(&call.tool()));
            let annotations = call.annotations();
            let annotations = Json::parse(&annotations).map_err(|error| format!("annotations: {error}"))?;
            // The defaults of MCP for a hint that is missing, or is no boolean.
            for (attribute, hint, default) in [
                ("readOnly", "readOnlyHint", false),
                ("destructive", "destructiveHint", true),
                ("idempotent", "idempotentHint", false),
                ("openWorld", "openWorldHint", true),
            ] {
                let given = match annotations.get(hint).map(|hint| &hint.value) {
                    Some(Value::Bool(given)) => *given,
                    _ => default,
                };
                attributes.insert(attribute.into(), Expression::new_bool(given));
            }
        }
        "prompts/get" => drop(attributes.insert("name".into(), text(&call.tool()))),
        "resources/read" => drop(attributes.insert("uri".into(), text(&call.tool()))),
        _ => {}
    }
    Ok(attributes)
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn entity(
    uid: EntityUid,
    attributes: HashMap<String, Expression>,
    parent: Option<EntityUid>,
) -> Result<Entity, String> {
    Entity::new(uid, attributes, HashSet::from_iter(parent)).map_err(|_| "an attribute cannot be represented".into())
}

fn text(text: &str) -> Expression {
    Expression::new_string(text.to_owned())
}

fn trust(trust: Trust) -> &'static str {
    match trust {
        Trust::Sandbox => "sandbox",
        Trust::Low => "low",
        Trust::Medium => "medium",
        Trust::High => "high",
    }
}
