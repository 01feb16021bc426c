//! Questions about calls with large arguments: the parts that lists show, and how a question is read in full.

use serde_json::Value;

use super::embedding::oven;
use super::*;
use crate::control::{self, ControlRequest};
use crate::gate::{AnswerRoute, GivenAnswer, QuestionEvent};

/// Makes a request over the control socket of a broker.
async fn request(broker: &Broker, request: &ControlRequest) -> Value {
    let replies = control::all(&broker.config().data_dir, request).await.unwrap();
    assert_eq!(replies.len(), 1);
    replies.into_iter().next().unwrap().1.unwrap()
}

/// Reads the arguments of a question over the control socket of a broker, part by part.
async fn shown(broker: &Broker, ask: &str) -> String {
    let (mut text, mut next) = (String::new(), Some(0));
    while let Some(from) = next {
        let part = request(broker, &ControlRequest::Show { question: ask.to_owned(), from }).await;
        assert_eq!(part["question"]["id"].is_null(), from > 0, "{}", part["question"]);
        text.push_str(part["text"].as_str().unwrap());
        next = part["next"].as_u64().map(|next| usize::try_from(next).unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_with_large_arguments_hides_no_other_and_is_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let broker = oven(folder.path(), "always").await;
    let mut events = broker.inbox().subscribe();
    let session = session(&broker).await;
    let long = json!({ "path": "/etc/passwd", "text": "\"é\\".repeat(600_000), "mode": "append" });
    let many = json!({ "path": "/etc/passwd", "numbers": vec![100; 400_000] });
    let small = json!({ "path": "/etc/motd" });
    let (mut calls, mut ids) = (Vec::new(), Vec::new());
    for arguments in [long.clone(), many.clone(), small.clone()] {
        let session = Arc::clone(&session);
        calls.push(tokio::spawn(async move { session.call_tool("oven__bake", &arguments).await }));
        let QuestionEvent::Asked(asked) = events.recv().await.unwrap() else { panic!("nobody has answered") };
        ids.push(asked.id.clone());
        assert!(json!(*asked).to_string().len() < 64 * 1024, "events are kept for whoever is slow");
    }

    let listed = request(&broker, &ControlRequest::Questions).await;
    let listed = listed.as_array().unwrap();
    // Questions of the same millisecond have no order.
    let listed = ids.iter().map(|id| listed.iter().find(|ask| ask["id"] == **id).unwrap());
    let listed: Vec<&Value> = listed.collect();
    let cut: Vec<_> = listed.iter().map(|ask| ask["cut"].as_bool().unwrap()).collect();
    assert_eq!(cut, [true, true, false]);
    assert_eq!(listed[2]["arguments"], small);
    // Of long strings the middle is missing, and everything else is there.
    assert_eq!(listed[0]["arguments"]["mode"], "append");
    let text = listed[0]["arguments"]["text"].as_str().unwrap();
    assert!(text.contains("…(1799800 characters left out)…") && text.len() < 1000, "{text}");
    let text = listed[1]["arguments"].as_str().unwrap();
    assert!(
        text.starts_with("{\"path\":\"/etc/passwd\",\"numbers\":[100,100,") && text.contains("left out)…"),
        "{text}"
    );
    for (ask, arguments) in listed.into_iter().zip([long, many, small]) {
        let id = ask["id"].as_str().unwrap();
        assert_eq!(ask["argumentsBytes"], arguments.to_string().len());
        assert_eq!(shown(&broker, id).await, arguments.to_string());
        let whole = broker.inbox().question(id).unwrap();
        let expected = if ask["cut"] == true { Value::String(arguments.to_string()) } else { arguments };
        assert!(whole.arguments == expected && !whole.cut);
        broker.inbox().answer(id, &GivenAnswer::no(), "me", AnswerRoute::Person).await.unwrap();
    }
    for call in calls {
        assert!(call.await.unwrap().is_err());
    }
    broker.shutdown().await;
}
