//! Requests of a source to the agent: for its roots, for a completion by its model, for input from a person. Such a
//! request passes the gate as any call does, and so does the answer.

use std::sync::Arc;

use serde_json::Value;

use super::configured::ConfiguredSession;
use super::pending_rounds::AgentQuestion;
use crate::agent::AgentPeer;
use crate::call::{Call, Outcome, Params, Risk};
use crate::context::Upstream;
use crate::escape::escape_hidden;
use crate::gate::{AdmittedCall, GateInput};
use crate::protocol::{Answer, Json, Method, Request, RpcError, fold};
use crate::source::SourceRequest;

/// Parts of names of form fields that ask for a secret, in lower case and without separators. Sources must not ask for
/// secrets: the secrets of a source are configured where no model and no log sees them.
const SECRET: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "apikey",
    "accesskey",
    "privatekey",
    "token",
    "credential",
    "creditcard",
    "cardnumber",
    "securitycode",
    "socialsecurity",
];

/// Names of form fields that ask for a secret only as the whole name.
const SECRET_ALONE: [&str; 5] = ["pin", "cvv", "cvc", "otp", "ssn"];

/// The largest result that asks for input, in bytes: its questions and its source's state are kept until the agent
/// answers.
const MAX_ASKING_BYTES: usize = 8 * 1024 * 1024;

/// The largest number of questions in one result. Each is a separate call, with its records.
pub(super) const MAX_QUESTIONS: usize = 64;

impl ConfiguredSession {
    /// Puts a request of a source to the agent.
    pub(super) async fn ask(&self, upstream: &Upstream, request: Request, peer: &Arc<dyn AgentPeer>) -> Answer {
        match self.question(upstream, String::new(), &request.method, request.params, peer).await {
            Ok(question) => {
                let meta = question.permit.source_params().get("_meta");
                let token = meta.and_then(|meta| meta.get("progressToken"));
                let _open = token.map(|token| self.agent_side.source_questions.begin(token, &upstream.config.name));
                let answer = question.put_to_agent(peer).await;
                // Progress that the agent reported before its answer is worth nothing after it.
                self.agent_side.notifications.catch_up().await;
                let answer = question.ticket.release(Outcome::Answered(answer)).await;
                self.agent_side.source_questions.answered(&answer, &upstream.config.name);
                answer
            }
            Err(refusal) => refusal,
        }
    }

    /// Turns requests of the source into questions. The source is notified at once of each that is refused.
    pub(super) async fn questions(
        &self,
        upstream: &Upstream,
        asked: Vec<SourceRequest>,
        peer: &Arc<dyn AgentPeer>,
    ) -> Vec<AgentQuestion> {
        let mut questions = Vec::new();
        for (number, SourceRequest { request, reply }) in asked.into_iter().enumerate() {
            let key = format!("source-{number}");
            match self.question(upstream, key, &request.method, request.params, peer).await {
                Ok(question) => questions.push(AgentQuestion { reply: Some(reply), ..question }),
                // A source that gave up has dropped the other side.
                Err(refusal) => drop(reply.send(refusal)),
            }
        }
        questions
    }

    /// Returns the questions in a result that asks for input, and the source's own state.
    pub(super) async fn questions_in(
        &self,
        upstream: &Upstream,
        result: &Json,
        peer: &Arc<dyn AgentPeer>,
    ) -> Result<(Vec<AgentQuestion>, Option<Json>), Answer> {
        let [requests, state] = result.get_all(["inputRequests", "requestState"]);
        let requests = requests.and_then(|requests| requests.members()).unwrap_or_default();
        let refused = |text| Err(Answer::from(RpcError::new(RpcError::INTERNAL, text)));
        if requests.len() > MAX_QUESTIONS {
            let (asked, most) = (requests.len(), MAX_QUESTIONS);
            return refused(format!("the source asks {asked} questions in one result; at most {most} may be"));
        }
        let bytes = result.as_bytes().len();
        if bytes > MAX_ASKING_BYTES {
            return refused(format!("the source asks by a result of {bytes} bytes; at most {MAX_ASKING_BYTES} may be"));
        }
        let mut questions = Vec::new();
        for (key, request) in requests {
            let method = request.get_str("method").unwrap_or_default();
            questions.push(self.question(upstream, key, &Method::from(method), request.get("params"), peer).await?);
        }
        // The questions that wait for the agent keep no other part of the result.
        Ok((questions, state.map(|state| state.detached())))
    }

    /// Takes a question through the gate.
    pub(super) async fn question(
        &self,
        upstream: &Upstream,
        key: String,
        method: &Method,
        params: Option<Json>,
        peer: &Arc<dyn AgentPeer>,
    ) -> Result<AgentQuestion, Answer> {
        // A question may wait for its answer, and keeps nothing else of the message.
        let params = params.map_or_else(Json::empty_object, |params| params.detached());
        let params = self.admissible(upstream, method, params);
        let params = params.map_err(|why| self.refuse_to_ask(upstream, method, &why))?;
        let item = Arc::new(upstream.whole_item());
        let call = Call::new(method, Params::parse(method, params), &self.caller, item, Risk::Harmless);
        let input = GateInput::of_question(self, upstream, peer);
        let admitted = self.context.gate.admit(call, &input).await;
        let AdmittedCall { permit, mut ticket } = admitted.map_err(|refusal| refusal.to_answer())?;
        ticket.keep_question();
        Ok(AgentQuestion { key, permit, ticket, reply: None })
    }

    /// Returns the parameters as the agent gets them, or why the source may not ask this.
    fn admissible(&self, upstream: &Upstream, method: &Method, params: Json) -> Result<Json, String> {
        let needed = match method {
            Method::ElicitationCreate => "elicitation",
            Method::SamplingCreateMessage => "sampling",
            Method::RootsList => "roots",
            // An agent may be lenient: `Elicitation/Create` counts as `elicitation/create`.
            method if method.is_reserved() => return Err("a source cannot ask this of an agent".to_owned()),
            _ => return Ok(params),
        };
        if needed == "sampling" && !self.profile.sampling {
            return Err(
                "this broker lets no source use the agent's model; `sampling = true` in the profile would".to_owned()
            );
        }
        if !self.agent_side.agent.can(needed) {
            return Err(format!("the agent did not declare `{needed}`"));
        }
        if needed == "elicitation" && params.get("url").is_some() && !self.agent_side.agent.opens_pages() {
            return Err("the agent did not declare `elicitation.url`".to_owned());
        }
        if needed == "elicitation" { elicitation(upstream.config.name.as_str(), &params) } else { Ok(params) }
    }

    fn refuse_to_ask(&self, upstream: &Upstream, method: &Method, why: &str) -> Answer {
        let item = upstream.whole_item();
        let error =
            self.record_rejection("not-asked", item.kind, &item.exposed, &format!("`{method}` is refused: {why}"));
        Answer::from(RpcError { code: RpcError::INVALID_REQUEST, ..error })
    }
}

impl AgentQuestion {
    /// Puts the question to an agent that takes requests.
    pub(super) async fn put_to_agent(&self, peer: &Arc<dyn AgentPeer>) -> Answer {
        let params = Some(self.permit.source_params().clone()).filter(|params| *params != Json::empty_object());
        peer.request(self.permit.method(), params).await
    }
}

/// Returns the parameters of an elicitation, in which the message names the source that asks. An error if it asks for a
/// secret.
fn elicitation(source: &str, params: &Json) -> Result<Json, String> {
    if let Some(schema) = params.get("requestedSchema") {
        let schema: Value = schema.read().map_err(|error| format!("`requestedSchema` is not a schema: {error}"))?;
        if let Some(field) = secret_field(&schema) {
            return Err(format!("field `{}` asks a person for a secret", escape_hidden(&field)));
        }
    }
    let mut message = format!("Source `{source}` asks: {}", params.get_str("message").unwrap_or_default());
    if let Some(url) = params.get_str("url") {
        let parsed = url::Url::parse(&url).map_err(|error| format!("`url` is not a URL: {error}"))?;
        let host = parsed.host_str().filter(|_| matches!(parsed.scheme(), "http" | "https"));
        let host = host.ok_or("`url` is not a web address")?;
        // The host in the form in which it is resolved, so that look-alike letters show.
        message = format!("{message} (opens a page of `{host}`)");
    }
    params.with("message", &Json::of(&message)).ok_or_else(|| "`params` must be an object".to_owned())
}

/// Returns the first field of a form that asks for a secret, at any depth. Keywords count in any spelling, as some
/// agents read them without regard to case.
fn secret_field(schema: &Value) -> Option<String> {
    let asks = |text: &str| {
        let plain: String = text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        SECRET_ALONE.contains(&plain.as_str()) || SECRET.iter().any(|word| plain.contains(word))
    };
    let secret = |(name, property): (&str, &Value)| {
        let mut texts = members(property).filter_map(|(key, value)| Some((fold(key), value.as_str()?)));
        let found = asks(name)
            || texts.any(|(key, text)| key == "title" && asks(text) || key == "format" && fold(text) == "password");
        found.then(|| name.to_owned())
    };
    members(schema).find_map(|(key, value)| {
        let own = (fold(key) == "properties").then(|| members(value).find_map(secret)).flatten();
        own.or_else(|| secret_field(value))
    })
}

/// Returns the members of an object, or the elements of a list under an empty name.
fn members(value: &Value) -> Box<dyn Iterator<Item = (&str, &Value)> + '_> {
    match value {
        Value::Object(object) => Box::new(object.iter().map(|(key, value)| (key.as_str(), value))),
        Value::Array(list) => Box::new(list.iter().map(|value| ("", value))),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn asked(params: &'static str) -> Result<String, String> {
        elicitation("files", &Json::parse(params).unwrap()).map(|json| json.as_str().to_owned())
    }

    #[test]
    fn a_question_names_its_source_and_keeps_the_rest() {
        let form = r#"{ "message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"pinned":{}}},"x":1.0}"#;
        assert_eq!(asked(form).unwrap(), form.replace("Your name?", "Source `files` asks: Your name?"));
        let url = r#"{"mode":"url","message":"Sign in","url":"https://b\u00fccher.example/x","elicitationId":"1"}"#;
        assert!(asked(url).unwrap().contains("(opens a page of `xn--bcher-kva.example`)"));
    }

    #[test]
    fn secrets_and_strange_addresses_are_not_asked_for() {
        for field in ["password", "API_KEY", "apiKey", "Access Token", "pin", "credit-card", "userPassword2"] {
            let params = serde_json::json!({ "message": "m", "requestedSchema": { "properties": { field: {} } } });
            assert!(elicitation("files", &Json::of(&params)).is_err(), "{field}");
        }
        for params in [
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"title":"Your password"}}}}"#,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"format":"password"}}}}"#,
            r#"{"message":"m","requestedSchema":{"Properties":{"password":{}}}}"#,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"Title":"Your password"}}}}"#,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"Format":"Password"}}}}"#,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"type":"object","properties":{"pin":{}}}}}}"#,
            r#"{"message":"m","requestedSchema":{"anyOf":[{"properties":{"token":{}}}]}}"#,
            r#"{"message":"m","url":"javascript:alert(1)"}"#,
            r#"{"message":"m","url":"no url"}"#,
        ] {
            assert!(asked(params).is_err(), "{params}");
        }
    }
}
