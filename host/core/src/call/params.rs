//! The parameters of a request, parsed once.

use crate::protocol::{Json, Method};

/// The parameters of a request: the text as received, and the members that the broker reads, each a slice of that text.
/// All members are found in one pass. Of several members of one name the last counts, as for [`Json::get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    whole: Json,
    name: Option<Json>,
    uri: Option<Json>,
    meta: Option<Json>,
    request_state: Option<Json>,
    input_responses: Option<Json>,
    arguments: Json,
}

impl Params {
    /// The members that a retry carries in addition to the request that it repeats (2026-07-28, "Multi Round-Trip
    /// Requests").
    pub const OF_RETRIES: [&str; 2] = ["requestState", "inputResponses"];

    /// Parses the parameters of a request of this method. Parameters that are not an object have no members.
    #[must_use]
    pub fn parse(method: &Method, whole: Json) -> Self {
        let [state, responses] = Self::OF_RETRIES;
        let members = ["name", "uri", "_meta", state, responses, "arguments"];
        let [name, uri, meta, request_state, input_responses, arguments] = whole.get_all(members);
        let arguments = match method.has_arguments() {
            // Clients in several languages write a map that is not there as null.
            true => arguments.filter(|value| *value != Json::null()).unwrap_or_else(Json::empty_object),
            false if whole.as_bytes().starts_with(b"[") => {
                Json::empty_object().with("params", &whole).unwrap_or_else(Json::empty_object)
            }
            false => whole.without_all(method.protocol_members()),
        };
        Self { whole, name, uri, meta, request_state, input_responses, arguments }
    }

    /// Returns the whole parameters, byte for byte.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.whole
    }

    /// Returns the member `name`.
    #[must_use]
    pub fn name(&self) -> Option<&Json> {
        self.name.as_ref()
    }

    /// Returns the member `uri`.
    #[must_use]
    pub fn uri(&self) -> Option<&Json> {
        self.uri.as_ref()
    }

    /// Returns the member `_meta`.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_ref()
    }

    /// Returns the token under which the caller wants progress notifications.
    #[must_use]
    pub fn progress_token(&self) -> Option<Json> {
        self.meta()?.get("progressToken").filter(|token| *token != Json::null())
    }

    /// Returns the member `requestState` of a retry, if it is a string.
    #[must_use]
    pub fn request_state(&self) -> Option<String> {
        self.request_state.as_ref()?.read().ok()
    }

    /// Returns the member `inputResponses` of a retry.
    #[must_use]
    pub fn input_responses(&self) -> Option<&Json> {
        self.input_responses.as_ref()
    }

    /// Reports whether the parameters have one of [`Params::OF_RETRIES`].
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.request_state.is_some() || self.input_responses.is_some()
    }

    /// Returns the caller's arguments to the source, a JSON object: the member `arguments` of
    /// `tools/call` and `prompts/get`, and of other methods all members that are not the protocol's own. Positional
    /// parameters become the one member `params`.
    #[must_use]
    pub fn arguments(&self) -> &Json {
        &self.arguments
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn one_pass_finds_what_single_looks_find_and_keeps_the_bytes() {
        let text = r#"{ "name":"a","arguments":{"x":1.0},"_meta":{"progressToken":7}, "uri":"u","name":"b","requestState":"s","inputResponses":{"k":1}}"#;
        let whole = Json::parse(text).unwrap();
        let params = Params::parse(&Method::ToolsCall, whole.clone());
        assert_eq!(params.as_json(), &whole);
        assert_eq!(params.name().cloned(), whole.get("name"));
        assert_eq!(params.uri().cloned(), whole.get("uri"));
        assert_eq!(params.meta().cloned(), whole.get("_meta"));
        assert_eq!(params.input_responses().cloned(), whole.get("inputResponses"));
        assert_eq!(params.request_state().as_deref(), Some("s"));
        assert_eq!(params.progress_token().unwrap().as_str(), "7");
        assert_eq!(params.arguments().as_str(), r#"{"x":1.0}"#);
        assert!(params.is_retry());
        let positional = Params::parse(&"vendor/do".into(), Json::parse("[1]").unwrap());
        assert_eq!((positional.name(), positional.is_retry()), (None, false));
        assert_eq!(positional.arguments().as_str(), r#"{"params":[1]}"#);
    }

    #[test]
    fn arguments_and_a_token_that_are_null_count_as_absent_and_stay_as_they_were_sent() {
        let text = r#"{"name":"a","arguments":null,"_meta":{"progressToken":null}}"#;
        let params = Params::parse(&Method::ToolsCall, Json::parse(text).unwrap());
        assert_eq!((params.arguments().as_str(), params.progress_token()), ("{}", None));
        assert_eq!(params.as_json().as_str(), text);
    }
}
