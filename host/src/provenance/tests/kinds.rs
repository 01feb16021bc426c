//! A text that several sources have given keeps the labels of all of them.

use std::collections::HashSet;

use super::*;

/// Returns the source and the labels of each origin, the latest first.
fn found(session: &Arc<SessionFlow>, text: &str) -> Vec<(String, Vec<String>)> {
    let origins = call(session, "out", &[], &json!({ "text": text })).origins();
    origins.into_iter().map(|origin| (origin.source.to_string(), origin.labels.to_vec())).collect()
}

#[test]
fn a_label_is_found_between_two_results_with_the_same_text_and_other_labels() {
    for (given, asked) in [
        (KEY.to_owned(), KEY),
        (format!("the key is {KEY}, as it was"), KEY),
        (SENTENCE.to_owned(), SENTENCE),
        ("a room in the Riverside View Hotel is free".to_owned(), "Riverside View Hotel"),
    ] {
        let session: Arc<SessionFlow> = Arc::default();
        for (name, label) in
            [("crm", "crm"), ("files", PRIVATE), ("crm", "crm"), ("web", UNTRUSTED), ("crm", "crm"), ("crm", "crm")]
        {
            see(&session, name, &[label], &given);
        }
        let found: HashSet<_> = found(&session, asked).into_iter().collect();
        let expected = [("crm", "crm"), ("files", PRIVATE), ("web", UNTRUSTED)];
        let expected = expected.map(|(name, label)| (name.to_owned(), vec![label.to_owned()]));
        assert_eq!(found, HashSet::from(expected), "{asked}");
    }
}

#[test]
fn a_source_is_found_between_two_results_of_another_source_with_the_same_label() {
    let session: Arc<SessionFlow> = Arc::default();
    for name in ["files", "notes", "files"] {
        see(&session, name, &[PRIVATE], KEY);
    }
    let names: Vec<_> = found(&session, KEY).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["files", "notes", "files"]);
}

#[test]
fn a_result_of_a_call_inherits_the_labels_that_are_found_between_others() {
    let session: Arc<SessionFlow> = Arc::default();
    for (name, label) in [("crm", "crm"), ("files", PRIVATE), ("crm", "crm")] {
        see(&session, name, &[label], KEY);
    }
    let turned = "fx-Yvir-0a1b2c3d4e5f6789";
    call(&session, "turn", &[], &json!({ "text": KEY })).keep_result(&Json::of(&json!({ "text": turned })));
    assert_eq!(found(&session, turned), [("turn".to_owned(), vec!["crm".to_owned(), PRIVATE.to_owned()])]);
}

#[test]
fn every_kind_is_kept_in_whatever_order_results_are_taken() {
    // The kinds of five results. Each order is a number whose digits say which of the remaining ones comes next.
    let kinds = [0, 1, 0, 2, 0];
    for order in 0..120 {
        let mut index = FingerprintIndex::default();
        kinds.iter().for_each(|kind| index.add_result(*kind));
        let (mut order, mut left) = (order, vec![0, 1, 2, 3, 4]);
        while !left.is_empty() {
            let next = order % left.len();
            order /= left.len();
            let result = left.remove(next);
            assert!(index.insert(7, result));
            assert!(index.insert(8, result));
        }
        let mut found = HashSet::new();
        index.each(7, &mut HashSet::new(), |result| {
            found.insert(kinds[usize::from(result)]);
        });
        assert_eq!(found, HashSet::from([0, 1, 2]));
        let found: HashSet<_> = index.with_all(&[7, 8]).into_iter().map(|result| kinds[usize::from(result)]).collect();
        assert_eq!(found, HashSet::from([0, 1, 2]));
    }
}

#[test]
fn an_old_result_with_a_label_of_its_own_is_named_before_many_sources_with_another_label() {
    let session = Arc::default();
    see(&session, "files", &[PRIVATE], KEY);
    let values: Vec<_> = (0..40).map(|number| format!("ticket-{number:06}")).collect();
    for (number, value) in values.iter().enumerate() {
        see(&session, &format!("web{number}"), &[UNTRUSTED], value);
    }
    let found = found(&session, &format!("{KEY} {}", values.join(" ")));
    assert_eq!(found.len(), 32);
    assert!(found.iter().any(|(_, labels)| labels.iter().any(|label| label == PRIVATE)), "{found:?}");
}
