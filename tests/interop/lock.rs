//! Risky tools ask until a person accepts them, as a new user experiences it with a third party's server.

use crate::broker::{TestDir, output};
use crate::inspector::approve;

#[tokio::test(flavor = "multi_thread")]
async fn a_risky_tool_asks_until_it_is_accepted() {
    let dir = TestDir::new("").await;
    let mut echo = dir.portcullis(&["call", "everything__echo", r#"{"message":"hi"}"#]);

    let (asked, ()) = tokio::join!(output(&mut echo), approve(&dir, "everything__echo"));
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "Echo: hi\n");

    let accepted = dir.json(&["lock", "accept"]).await;
    assert!(
        accepted["accepted"].as_array().unwrap().iter().any(|tool| tool["tool"] == "everything__echo"),
        "{accepted}"
    );
    assert!(accepted["left"].as_array().unwrap().iter().any(|tool| tool == "files__write_file"), "{accepted}");
    let accepted = output(&mut echo).await;
    assert_eq!(String::from_utf8_lossy(&accepted.stdout), "Echo: hi\n");

    dir.verify(None).await;
}
