//! A tool source as a component: a store of knowledge that outlives the session. Entities have observations, and
//! relations to each other; each profile has its own store. Entities are also offered as resources.
//!
//! Every fact has its own key, so that concurrent calls add to each other and no fact is lost: `e NAME` → nothing,
//! `k NAME` → kind, `o NAME hash` → observation, `r NAME relation OTHER` → nothing. A unit separator is between the
//! parts.

use portcullis_plugin::key_value::{self, Change};
use portcullis_plugin::{Effect, Failure, Resources, Tools, arguments, settings, text_result, tool};
use serde_json::json;

mod entity;

use entity::{Entities, Entity, Name};

/// The most entities that one search returns.
const FOUND: usize = 50;

/// The number of facts that are forgotten at a time: the most changes that a store accepts in one call.
const CHANGES: usize = 1000;

/// The most entities that a list of resources contains.
const LISTED: usize = 1000;

struct Memory;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Remember {
    entity: Name,
    kind: Option<String>,
    #[serde(default)]
    observations: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Relate {
    from: Name,
    relation: Name,
    to: Name,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Recall {
    words: Option<String>,
    entity: Option<Name>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    entity: Name,
    observation: Option<String>,
    relation: Option<Name>,
    to: Option<Name>,
}

impl Tools for Memory {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(settings: &str) -> Result<Self, String> {
        settings::none(settings).map(|()| Self)
    }

    fn definitions(&self) -> Result<String, String> {
        let text = |description: &str| json!({ "type": "string", "description": description });
        let name = text("The name of an entity, such as \"Ada Lovelace\".");
        let list = json!({ "type": "array", "items": { "type": "string" }, "description": "Facts, each a sentence of its own." });
        let tools = json!([
            tool(
                "remember",
                "Remembers facts about an entity, beside those that are known already.",
                json!({ "entity": name, "kind": text("What it is, such as person or project."), "observations": list }),
                &["entity"],
                Effect::Adds,
            ),
            tool(
                "relate",
                "Remembers how one entity is related to another.",
                json!({ "from": name, "relation": text("In the active voice, such as \"works on\"."), "to": name }),
                &["from", "relation", "to"],
                Effect::Adds,
            ),
            tool(
                "recall",
                "Returns what is known about one entity, or about all whose facts contain the words; otherwise lists the entities.",
                json!({ "words": text("Words that the facts must all contain; case is ignored."), "entity": name }),
                &[],
                Effect::Reads,
            ),
            tool(
                "forget",
                "Forgets an entity with its facts and relations; or one observation or relation of it.",
                json!({
                    "entity": name, "observation": text("Exactly as it was remembered."),
                    "relation": text("Only this relation, to the entity in `to`."), "to": name,
                }),
                &["entity"],
                Effect::Overwrites,
            ),
        ]);
        Ok(tools.to_string())
    }

    fn open(&self) -> Result<(), String> {
        Ok(())
    }

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        let said = match tool {
            "remember" => remember(&self::arguments(arguments)?),
            "relate" => relate(&self::arguments(arguments)?),
            "recall" => recall(&self::arguments(arguments)?),
            "forget" => forget(&self::arguments(arguments)?),
            _ => return Err(Failure::UnknownTool),
        };
        said.map(|said| text_result(&said)).map_err(Failure::Failed)
    }
}

impl Resources for Memory {
    fn list(&self) -> Result<String, String> {
        let names = entity::names()?.into_iter().take(LISTED);
        let resource = |(name, kind): (String, String)| json!({ "uri": entity::uri(&name), "name": name, "description": kind, "mimeType": "text/plain" });
        Ok(json!(names.map(resource).collect::<Vec<_>>()).to_string())
    }

    fn read(&self, uri: &str) -> Result<Option<String>, String> {
        let Some(name) = entity::named_by(uri) else { return Ok(None) };
        let Some(entity) = Entity::read(&name)? else { return Ok(None) };
        Ok(Some(json!([{ "uri": uri, "mimeType": "text/plain", "text": entity.to_string() }]).to_string()))
    }
}

fn remember(Remember { entity, kind, observations }: &Remember) -> Result<String, String> {
    let mut changes = entity.known(kind.as_deref());
    changes.extend(observations.iter().map(|text| Change::set(entity.observation(text), text.as_bytes())));
    key_value::write(&changes)?;
    Ok(format!("remembered {} of {entity}", counted(observations.len(), "observation")))
}

fn relate(Relate { from, relation, to }: &Relate) -> Result<String, String> {
    let mut changes = from.known(None);
    changes.extend(to.known(None));
    changes.push(Change::set(from.relation(relation, to), b""));
    key_value::write(&changes)?;
    Ok(format!("remembered that {from} {relation} {to}"))
}

fn recall(Recall { words, entity }: &Recall) -> Result<String, String> {
    if let Some(name) = entity {
        return Ok(
            Entity::read(name)?.map_or_else(|| format!("nothing is known of {name}"), |entity| entity.to_string())
        );
    }
    let Some(words) = words.as_ref().filter(|words| !words.trim().is_empty()) else {
        let names = entity::names()?;
        let listed =
            names.iter().map(|(name, kind)| if kind.is_empty() { name.clone() } else { format!("{name} ({kind})") });
        return Ok(if names.is_empty() {
            "nothing is known".to_owned()
        } else {
            listed.collect::<Vec<_>>().join("\n")
        });
    };
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let (mut entities, mut found) = (Entities::all(), Vec::new());
    while let Some(entity) = entities.read()? {
        let text = entity.to_string();
        let lower = text.to_lowercase();
        if words.iter().all(|word| lower.contains(word)) {
            found.push(text);
        }
        if found.len() == FOUND {
            found.push("[there may be more: search for more words]".to_owned());
            break;
        }
    }
    Ok(if found.is_empty() { "nothing that is known contains all these words".to_owned() } else { found.join("\n\n") })
}

fn forget(Forget { entity, observation, relation, to }: &Forget) -> Result<String, String> {
    let known = |key: String| Ok::<_, String>(key_value::get(&key)?.map(|_| key).into_iter().collect());
    let keys: Vec<String> = match (observation, relation, to) {
        (None, None, None) => entity.keys()?,
        (Some(text), None, None) => known(entity.observation(text))?,
        (None, Some(relation), Some(to)) => known(entity.relation(relation, to))?,
        _ => return Err("name an observation, or a relation with its `to`, or neither".to_owned()),
    };
    if keys.is_empty() {
        return Ok(format!("nothing of that was known of {entity}"));
    }
    for some in keys.chunks(CHANGES) {
        key_value::write(&some.iter().map(Change::remove).collect::<Vec<_>>())?;
    }
    Ok(format!("forgot {} of {entity}", counted(keys.len(), "fact")))
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

portcullis_plugin::export_tools_and_resources!(Memory);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
