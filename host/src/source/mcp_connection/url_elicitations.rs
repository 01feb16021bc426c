//! Web pages that people were sent to (URL elicitation), to tell the right session when one is completed.
//!
//! Specification: MCP 2025-11-25, "URL Elicitation Required Error" and "Completion Notifications".

use std::collections::VecDeque;

use crate::call::SessionId;
use crate::protocol::{Json, MAX_ID_BYTES, RpcError};

/// The most pages that are remembered. After so many later ones, a person has left a page for good.
const MAX_PAGES: usize = 256;

/// The pages that calls over one connection have asked for.
#[derive(Default)]
pub(super) struct UrlElicitations(VecDeque<(String, SessionId)>);

impl UrlElicitations {
    /// Remembers the pages in the error with which a call of this session was refused.
    pub(super) fn remember(&mut self, session: &SessionId, error: &Json) {
        for page in needed(error) {
            let Some(id) = page.get_str("elicitationId").filter(|id| id.len() <= MAX_ID_BYTES) else { continue };
            if self.0.len() >= MAX_PAGES {
                self.0.pop_front();
            }
            self.0.push_back((id, session.clone()));
        }
    }

    /// Returns the session that was sent to a page, and forgets the page.
    pub(super) fn take(&mut self, id: &str) -> Option<SessionId> {
        let at = self.0.iter().rposition(|(known, _)| known == id)?;
        self.0.remove(at).map(|(_, session)| session)
    }
}

/// Returns the pages that an error -32042 asks for, each as the parameters of an elicitation.
pub(crate) fn needed(error: &Json) -> Vec<Json> {
    let code = error.get("code").and_then(|code| code.read::<i64>().ok());
    if code != Some(RpcError::URL_ELICITATION_REQUIRED) {
        return Vec::new();
    }
    let pages = error.get("data").and_then(|data| data.get("elicitations"));
    pages.and_then(|pages| pages.items()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn each_page_leads_back_once_to_the_session_that_was_sent_there() {
        let error = |id: usize| {
            let page =
                serde_json::json!({ "mode": "url", "elicitationId": id.to_string(), "url": "https://x.example" });
            Json::of(&serde_json::json!({ "code": -32042, "data": { "elicitations": [page] } }))
        };
        let (one, two) = (SessionId::new(), SessionId::new());
        let mut pages = UrlElicitations::default();
        pages.remember(&one, &error(1));
        pages.remember(&two, &error(2));
        pages.remember(&two, &Json::of(&serde_json::json!({ "code": -32000, "data": { "elicitations": [] } })));
        assert_eq!(pages.take("2"), Some(two.clone()));
        assert_eq!(pages.take("2"), None);
        (3..=MAX_PAGES + 2).for_each(|id| pages.remember(&two, &error(id)));
        assert_eq!(pages.take("1"), None, "the oldest is forgotten");
    }
}
