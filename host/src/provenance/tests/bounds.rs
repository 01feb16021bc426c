//! Bounds on the work and memory that an agent can cause with the arguments of one call.

use super::*;
use crate::principal::Principal;
use crate::provenance::encoded::Decoder;
use crate::provenance::fingerprint_index::MAX_BETWEEN;
use crate::shared_limit::SharedLimit;

#[test]
fn a_long_name_is_not_copied_for_each_value_under_it() {
    // A copy for each would take 25 GB.
    let mut values = vec![json!(1); 50_000];
    values.push(json!(KEY));
    let found = origins(&session(), json!({ ("k".repeat(500_000)): values }));
    assert_eq!(found, [("files__read".to_owned(), format!("/{}…", "k".repeat(255)))]);
}

#[test]
fn a_long_place_is_cut_between_two_letters_and_says_so() {
    let place = |arguments: Value| origins(&session(), arguments).remove(0).1;
    for (name, shown) in [
        ("k".repeat(255), "k".repeat(255)),
        ("k".repeat(256), "k".repeat(255) + "…"),
        ("é".repeat(128), "é".repeat(127) + "…"),
        ("~".repeat(128), "~0".repeat(127) + "…"),
        ("/".repeat(128), "~1".repeat(127) + "…"),
    ] {
        assert_eq!(place(json!({ (name): KEY })), format!("/{shown}"));
    }
    let long = "k".repeat(255);
    assert_eq!(place(json!({ (long.clone()): [{ "to": KEY }] })), format!("/{long}…"));
    assert_eq!(place(json!({ (long.clone()): [1], "a": [0, KEY] })), "/a/1", "what stands beside it is not cut");
    assert_eq!(place(json!({ "a": json!({ "inner": [KEY] }).to_string() })), "/a", "the place of the text");
}

#[test]
fn arguments_that_repeat_a_block_of_every_result_are_looked_up_in_one_pass() {
    // If each match searched the results that were found before, this would take minutes.
    let session: Arc<SessionFlow> = Arc::default();
    let block = "x".repeat(24);
    for n in 0..MAX_RESULTS {
        see(&session, "web", &[UNTRUSTED], &format!("part{n:04} {block}"));
    }
    let parts: String = (0..MAX_RESULTS).map(|n| format!("part{n:04} ")).collect();
    let found = session.look_up(&[Json::of(&json!({ "a": parts, "b": "x".repeat(1_000_000) }))]);
    assert_eq!(found.results.len(), MAX_RESULTS);
    assert!(!found.cut);
}

#[test]
fn arguments_that_decode_to_much_more_than_they_are_count_as_not_traced() {
    // Each alignment of this text is readable, and so is its decoding.
    let arguments = json!({ "text": "zMzM".repeat(60_000), "key": KEY });
    let session = session();
    let first = call(&session, "out", &[], &arguments);
    assert!(!first.is_traced());
    assert_eq!(first.origins().len(), 1, "what is not encoded is found all the same");
    first.keep_result(&Json::of(&json!({ "text": "something else of this call" })));
    let later = call(&session, "out", &[], &json!({ "text": "something else of this call" }));
    assert!(later.is_traced());
    assert_eq!(&later.origins()[0].labels[..], &[PRIVATE.to_owned()][..]);
}

#[test]
fn a_text_is_decoded_within_a_budget() {
    let read = |text: &str| {
        let (mut decoder, mut bytes) = (Decoder::default(), 0);
        decoder.each_reading(text, &mut |reading| bytes += reading.len());
        (decoder.is_cut(), bytes)
    };
    let (cut, bytes) = read(&"zMzM".repeat(250_000));
    assert!(cut && bytes <= 10 * 1024 * 1024, "{bytes}");
    let (cut, _) = read(&STANDARD.encode(SENTENCE.repeat(9_000)));
    assert!(!cut, "ordinary content is decoded as a whole");
    let (cut, _) = read(&SENTENCE.repeat(12_000).replace(' ', "%20"));
    assert!(!cut, "ordinary content is decoded as a whole");
}

#[test]
fn ordinary_arguments_of_a_mebibyte_are_traced() {
    let values: Vec<_> =
        (0..8_800).map(|n| format!("{n} {SENTENCE} %20 {}", STANDARD.encode("an ordinary text"))).collect();
    let arguments = Json::of(&json!(values));
    assert!(arguments.as_bytes().len() > 1_000_000);
    assert!(call_with(&session(), "out", &[], &arguments).is_traced());
}

#[test]
fn a_session_with_too_many_kinds_of_results_is_not_traced_any_more() {
    let session: Arc<SessionFlow> = Arc::default();
    for n in 0..MAX_KINDS {
        see(&session, &format!("source{n}"), &[UNTRUSTED], "the same text");
    }
    see(&session, "source0", &[UNTRUSTED], "the same text");
    let arguments = json!({ "text": "the same text" });
    assert!(call(&session, "out", &[], &arguments).is_traced());
    assert_eq!(session.look_up(&[Json::of(&arguments)]).results.len(), MAX_KINDS + 1);
    see(&session, "source0", &[PRIVATE], "the same text");
    let call = call(&session, "out", &[], &json!({}));
    assert!(!call.is_traced());
    assert_eq!(call.labels(), [PRIVATE, UNTRUSTED]);
}

#[test]
fn results_that_cannot_be_kept_between_the_first_and_the_last_are_reported() {
    let mut index = FingerprintIndex::default();
    (0..4).for_each(|kind| index.add_result(kind));
    let fingerprints = 0..u64::try_from(MAX_BETWEEN).unwrap();
    for result in 0..3 {
        assert!(fingerprints.clone().all(|fingerprint| index.insert(fingerprint, result)));
    }
    assert!(!index.insert(0, 3), "there is no room for the third result");
    assert!(index.insert(u64::MAX, 3), "the first result of a fingerprint needs none");
}

#[test]
fn sessions_of_a_caller_share_their_memory_and_one_without_room_counts_as_not_traced() {
    let within = |limit: &Arc<SharedLimit>, name: &str| {
        Arc::new(SessionFlow::within(PrincipalRoom::new(limit, &Principal::established(name))))
    };
    let text: String = (0..2_000).map(|n| format!("word{n:05} ")).collect();
    let fill = |session: &Arc<SessionFlow>| see(session, "web", &[UNTRUSTED], &text);
    let traced = |session: &Arc<SessionFlow>| call(session, "out", &[], &json!({ "a": "word00007" })).is_traced();
    let held = |session: &SessionFlow| session.seen.lock().as_ref().unwrap().share.as_ref().unwrap().count();
    let alone = within(&SharedLimit::new(MAX_FLOW_BYTES), "token:a");
    fill(&alone);
    let limit = SharedLimit::new(held(&alone) * 39 / 10);
    let [first, second, other] = ["token:a", "token:a", "token:b"].map(|name| within(&limit, name));
    fill(&first);
    assert!(traced(&first) && traced(&second));
    fill(&second);
    assert!(!traced(&second), "the first session has left it no room");
    assert_eq!(call(&second, "out", &[], &json!({})).labels(), [UNTRUSTED.to_owned()], "no label is lost");
    assert!(traced(&first));
    second.clear();
    fill(&other);
    assert!(traced(&second) && traced(&other), "another caller finds room");
    drop(first);
    fill(&second);
    assert!(traced(&second), "a session that ends leaves its room");
    assert_eq!(origins(&second, json!({ "a": "word00007" })).len(), 1);
}
