//! Parameters that ask for what the tool has no business with.

use serde_json::Value;

use crate::Severity;

/// Returns the parameters whose names ask for the conversation, the model's instructions or the environment. A tool
/// about conversations gets a note only.
pub(crate) fn asked_for(definition: &Value) -> Vec<(Severity, String, String)> {
    let about = ["name", "title", "description"].iter().filter_map(|key| definition.get(key)?.as_str());
    let about: String = about.flat_map(|text| [text, " "]).collect::<String>().to_lowercase();
    let own = ["chat", "conversation", "prompt", "message", "llm", "memory", "transcript", "dialog", "session"];
    let severity = if own.iter().any(|word| about.contains(word)) { Severity::Note } else { Severity::Warning };
    let mut found = Vec::new();
    for schema in ["inputSchema", "input_schema"] {
        let Some(properties) = definition.pointer(&format!("/{schema}/properties")).and_then(Value::as_object) else {
            continue;
        };
        for name in properties.keys().filter(|name| asks(name)) {
            let escaped = name.replace('~', "~0").replace('/', "~1");
            found.push((severity, format!("/{schema}/properties/{escaped}"), crate::excerpt(name, 0)));
        }
    }
    found
}

/// Reports whether the name of a definition says that conversations or models are its subject.
pub(crate) fn is_about_conversations(definition: &Value) -> bool {
    const OWN: &[&str] =
        &["chat", "conversation", "prompt", "llm", "memory", "transcript", "dialog", "handoff", "agent"];
    let mut names = ["name", "title"].iter().filter_map(|key| definition.get(*key)?.as_str());
    names.any(|name| OWN.iter().any(|word| name.to_lowercase().contains(word)))
}

fn asks(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    const TAKEN: &[&str] = &[
        "conversationhistory",
        "chathistory",
        "fullconversation",
        "conversationcontext",
        "conversationlog",
        "systemprompt",
        "systeminstructions",
        "previousmessages",
        "allmessages",
        "messagehistory",
        "chainofthought",
        "toolslist",
        "availabletools",
        "allenvvars",
        "environmentdump",
        "envdump",
        "sshkey",
        "sshprivatekey",
        "fullcontext",
        "modelinstructions",
        "userhistory",
        "contextdump",
        "sidenote",
    ];
    TAKEN.contains(&plain.as_str())
}
