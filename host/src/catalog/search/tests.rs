#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::catalog::items_of;
use crate::catalog::testing::source;
use crate::config::Naming;
use crate::item::ItemKind;

fn tool(name: &str, description: &str, properties: &serde_json::Value) -> Json {
    let schema = json!({ "type": "object", "properties": properties });
    Json::of(&json!({ "name": name, "description": description, "inputSchema": schema }))
}

fn index() -> Index {
    let nothing = json!({});
    let mut forge = source("forge", Naming::Source);
    forge.tags = vec!["code".to_owned()];
    let forge = items_of(
        ItemKind::Tool,
        &forge,
        &[
            tool("createPullRequest", "Opens a pull request from a branch", &json!({ "head": { "type": "string" } })),
            tool(
                "list_issues",
                "Lists the issues of a repository",
                &json!({ "state": { "enum": ["open", "closed"] } }),
            ),
            tool("merge", "Merges what was reviewed", &json!({ "pull": { "description": "which pull request" } })),
        ],
    );
    let files = [
        tool("read_file", "Reads a file", &json!({ "path": { "type": "string" } })),
        tool("write_file", "Schreibt eine Datei, naïve encoding", &nothing),
    ];
    let files = items_of(ItemKind::Tool, &source("files", Naming::Source), &files);
    Index::of([forge.unwrap().items, files.unwrap().items].concat()).unwrap()
}

fn found(wanted: &ToolQuery) -> Vec<String> {
    index().find(wanted).unwrap().iter().map(|item| item.name.to_string()).collect()
}

fn by(query: &str) -> Vec<String> {
    found(&ToolQuery { query: Some(query.to_owned()), ..ToolQuery::default() })
}

#[test]
fn the_name_counts_most_and_the_schema_least() {
    assert_eq!(by("pull request"), ["createPullRequest", "merge"]);
    assert_eq!(by("pullrequest"), [""; 0], "no word is that, nor begins so");
    assert_eq!(by("createPullRequest")[0], "createPullRequest");
    assert_eq!(by("issue"), ["list_issues"], "by the stem");
    assert_eq!(by("closed"), ["list_issues"], "by a value of an argument");
    assert_eq!(by("reposit"), ["list_issues"], "by a beginning");
    assert_eq!(by("naive"), ["write_file"], "without accents");
    assert_eq!(by("files"), ["read_file", "write_file"], "by the source");
}

#[test]
fn a_sentence_finds_the_tool_that_shares_most_of_its_words() {
    assert_eq!(by("how do I open a pull request for my branch?")[0], "createPullRequest");
    assert_eq!(by("please read the contents of a file")[0], "read_file");
}

#[test]
fn a_source_and_a_tag_narrow_the_results() {
    let all = ToolQuery::default();
    assert_eq!(found(&all), ["read_file", "write_file", "createPullRequest", "list_issues", "merge"], "by name");
    assert_eq!(found(&ToolQuery { source: Some("files".into()), ..all.clone() }), ["read_file", "write_file"]);
    assert_eq!(found(&ToolQuery { tag: Some("code".into()), query: Some("merge".into()), ..all.clone() }), ["merge"]);
    assert_eq!(found(&ToolQuery { tag: Some("other".into()), ..all }), [""; 0]);
}

proptest! {
    /// Any text that a model sends is searched for; none is taken as syntax.
    #[test]
    fn no_query_is_an_error(query in ".{0,200}") {
        index().find(&ToolQuery { query: Some(query), ..ToolQuery::default() }).unwrap();
    }
}

#[test]
fn syntax_of_the_query_language_is_searched_for_as_text() {
    for query in ["\"", "a AND", "NEAR(", "name:x", "* ^", "-- ;", "OR", "{}", "  "] {
        index().find(&ToolQuery { query: Some(query.to_owned()), ..ToolQuery::default() }).unwrap();
    }
    assert_eq!(by("\u{0}"), [""; 0]);
    assert_eq!(by("what can you do"), [""; 0]);
}
