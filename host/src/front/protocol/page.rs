//! Pages of lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::item::ItemKind;
use crate::protocol::{Era, Json, RpcError};
use crate::session::ListPage;

/// The largest number of items in one page of a list. More than most clients use, so that in practice there is one
/// page.
const PAGE: usize = 1_000;

/// Returns the page of a list that `params.cursor` leads to: each item with the bytes that its source gave, and the
/// other members of the source's result if there is only one source.
///
/// # Errors
/// If this session did not give the cursor.
pub(super) fn page(era: Era, kind: ItemKind, list_page: &ListPage, params: &Json) -> Result<Json, RpcError> {
    let items = &*list_page.items;
    let start = match params.get("cursor").filter(|cursor| *cursor != Json::null()) {
        None => 0,
        Some(cursor) => read_cursor(&cursor).filter(|start| (1..items.len()).contains(start)).ok_or_else(|| {
            RpcError::new(RpcError::INVALID_PARAMS, "`cursor` is not one that this session gave; list without it")
        })?,
    };
    let rest = items.get(start..).unwrap_or_default();
    let shown = rest.get(..PAGE).unwrap_or(rest);
    let next = (rest.len() > PAGE).then(|| Json::of(&BASE64.encode((start + PAGE).to_string())));
    let (list, ttl_ms) = (Json::of(&shown), Json::of(&list_page.ttl_ms));
    let scope = Json::of(if list_page.public { &"public" } else { &"private" });
    let other_members = list_page.other_members.clone().unwrap_or_else(Json::empty_object);
    let mut members = vec![(kind.member(), Some(&list))];
    if era == Era::Modern {
        members.extend([("ttlMs", Some(&ttl_ms)), ("cacheScope", Some(&scope))]);
    }
    members.extend(next.as_ref().map(|next| ("nextCursor", Some(next))));
    Ok(other_members.edited(&members).unwrap_or(other_members))
}

fn read_cursor(cursor: &Json) -> Option<usize> {
    let text: String = cursor.read().ok()?;
    String::from_utf8(BASE64.decode(text).ok()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn list_page(count: usize) -> ListPage {
        let item = |n| Json::parse(format!("{{ \"name\":\"t{n}\" , \"x\":1e400}}")).unwrap();
        ListPage { items: (0..count).map(item).collect(), ttl_ms: 5, public: false, other_members: None }
    }

    #[test]
    fn a_page_keeps_what_the_only_source_says_beside_its_items() {
        let text = r#"{ "vendor":1.0, "tools":[] ,"_meta":{"vendor.example/a":1.50},"ttlMs":7}"#;
        let list_page = ListPage { other_members: Some(Json::parse(text).unwrap()), ..list_page(1) };
        assert_eq!(
            page(Era::Modern, ItemKind::Tool, &list_page, &Json::empty_object()).unwrap().as_str(),
            r#"{ "vendor":1.0, "tools":[{ "name":"t0" , "x":1e400}] ,"_meta":{"vendor.example/a":1.50},"ttlMs":5,"cacheScope":"private"}"#
        );
    }

    #[test]
    fn a_page_keeps_the_bytes_of_each_item() {
        let list = page(Era::Modern, ItemKind::Prompt, &list_page(1), &Json::empty_object()).unwrap();
        assert_eq!(list.as_str(), r#"{"prompts":[{ "name":"t0" , "x":1e400}],"ttlMs":5,"cacheScope":"private"}"#);
    }

    #[test]
    fn cursors_lead_through_all_pages_and_no_other_is_taken() {
        let list_page = list_page(PAGE + 1);
        let cursor =
            page(Era::Modern, ItemKind::Tool, &list_page, &Json::empty_object()).unwrap().get("nextCursor").unwrap();
        let next = |cursor: &Json| {
            page(Era::Modern, ItemKind::Tool, &list_page, &Json::empty_object().with("cursor", cursor).unwrap())
        };
        let last = next(&cursor).unwrap();
        assert_eq!(last.get("tools").unwrap().as_str(), r#"[{ "name":"t1000" , "x":1e400}]"#);
        assert_eq!(last.get("nextCursor"), None);
        for bad in ["\"nonsense\"", "7", "\"\"", "\"MA\"", "\"OTk5OTk5\""] {
            let bad = Json::parse(bad).unwrap();
            assert_eq!(next(&bad).unwrap_err().code, RpcError::INVALID_PARAMS, "{bad:?}");
        }
    }
}
