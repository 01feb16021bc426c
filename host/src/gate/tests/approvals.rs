use futures_util::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;

use super::*;

const CALL: &str = r#"{"name":"files__read","arguments":{"path":"/a"}}"#;

pub(super) async fn answer(bench: &Bench, approve: bool, scope: Option<&str>) -> AnswerResult {
    let id = bench.inbox.list()[0].id.clone();
    let answer = GivenAnswer { approve, scope: scope.map(str::to_owned), until: None };
    bench.inbox.answer(&id, &answer, "test", AnswerRoute::Person).await.unwrap()
}

/// Makes the first try of a modern agent, and returns the `requestState` for its retry.
pub(super) async fn input_required(bench: &Bench, params: &str) -> String {
    match bench.admit(params, Approve::Always, Elicitation::InputRequired).await.unwrap() {
        Err(CallRefusal::InputRequired(result)) => result.get_str("requestState").unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn retry(path: &str, state: &str) -> String {
    let yes = json!({ "action": "accept", "content": { "answer": "once" } });
    let retry = json!({ "name": "files__read", "arguments": { "path": path }, "requestState": state,
        "inputResponses": { "portcullis-approval": yes } });
    retry.to_string()
}

#[tokio::test]
async fn one_yes_lets_one_call_through_however_many_wait() {
    let bench = Bench::new().await;
    let (one, two, three) = (bench.ask(CALL).await, bench.ask(CALL).await, bench.ask(CALL).await);
    assert_eq!(bench.inbox.list()[0].waiting, 3);
    answer(&bench, true, None).await;
    let outcomes = [one.await.unwrap(), two.await.unwrap(), three.await.unwrap()];
    let (passed, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((passed.len(), refused.len()), (1, 2));
    assert!(refused.into_iter().all(|refused| code(refused) == "approval-used"));
}

#[tokio::test]
async fn a_late_answer_is_for_one_call() {
    let bench = Bench::new().await;
    bench.ask(CALL).await.abort();
    while bench.inbox.list()[0].waiting > 0 {
        tokio::task::yield_now().await;
    }
    assert!(!answer(&bench, true, None).await.waited);
    assert!(bench.admit(CALL, Approve::Always, Elicitation::None).await.unwrap().is_ok());
    let again = bench.ask(CALL).await;
    answer(&bench, false, None).await;
    assert_eq!(code(again.await.unwrap()), "approval-refused");
}

#[tokio::test]
async fn an_answer_under_one_profile_counts_under_no_other() {
    let mut bench = Bench::new().await;
    let state = input_required(&bench, CALL).await;
    assert!(!answer(&bench, true, None).await.waited);
    let first = std::mem::replace(&mut bench.profile, "lax".parse().unwrap());
    for params in [CALL.to_owned(), retry("/a", &state)] {
        let other = bench.admit(&params, Approve::Always, Elicitation::InputRequired).await.unwrap();
        assert!(matches!(other, Err(CallRefusal::InputRequired(_))), "{other:?}");
    }
    bench.profile = first;
    assert!(bench.admit(CALL, Approve::Always, Elicitation::None).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_retry_answers_for_its_own_arguments_once() {
    let bench = Bench::new().await;
    let state = input_required(&bench, CALL).await;
    let try_with = |params: String| bench.admit(&params, Approve::Always, Elicitation::InputRequired);
    // Another call under the same state is a separate question, and the first stays open.
    assert!(matches!(try_with(retry("/b", &state)).await.unwrap(), Err(CallRefusal::InputRequired(_))));
    assert_eq!(bench.inbox.list().len(), 2);
    assert_eq!(code(try_with(retry("/a", "forged")).await.unwrap()), "request-state");
    let (one, two) = (try_with(retry("/a", &state)), try_with(retry("/a", &state)));
    let passed = usize::from(one.await.unwrap().is_ok()) + usize::from(two.await.unwrap().is_ok());
    assert_eq!(passed, 1, "two retries at once share one yes");
    assert!(matches!(try_with(retry("/a", &state)).await.unwrap(), Err(CallRefusal::InputRequired(_))));
}

#[tokio::test]
async fn a_retry_may_come_in_another_session_of_the_same_principal() {
    let mut bench = Bench::new().await;
    let state = input_required(&bench, CALL).await;
    bench.session = crate::call::SessionId::new();
    let retried = bench.admit(&retry("/a", &state), Approve::Always, Elicitation::InputRequired).await.unwrap();
    assert!(retried.is_ok(), "{retried:?}");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_expires_all_the_same() {
    let bench = Bench::with(Duration::ZERO).await;
    let state = input_required(&bench, CALL).await;
    let retried = bench.admit(&retry("/a", &state), Approve::Always, Elicitation::InputRequired).await.unwrap();
    assert!(matches!(retried, Err(CallRefusal::InputRequired(_))), "an expired question takes no answer");
    assert!(bench.inbox.list().is_empty());
    let answered = bench.recorded("call.answered").await;
    assert!(answered.iter().all(|record| record["body"]["by"] == "expiry") && !answered.is_empty(), "{answered:?}");
}

#[tokio::test]
async fn a_question_whose_caller_gave_up_expires_by_itself() {
    let bench = Bench::with(Duration::from_millis(1)).await;
    let mut events = bench.inbox.subscribe();
    input_required(&bench, CALL).await;
    assert!(matches!(events.recv().await.unwrap(), QuestionEvent::Asked(_)));
    // Nobody asks for the list meanwhile. A minute is long enough for the slowest machine.
    let told = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.expect("nothing expires").unwrap();
    let QuestionEvent::Answered { approved, by, .. } = told else { panic!("{told:?}") };
    assert_eq!((approved, &*by), (false, "expiry"));
    assert_eq!(bench.recorded("call.answered").await.len(), 1);
}

#[tokio::test]
async fn an_answer_of_nobody_is_refused() {
    let bench = Bench::new().await;
    let waiting = bench.ask(CALL).await;
    let id = bench.inbox.list()[0].id.clone();
    for nobody in ["", " \t"] {
        let refused = bench.inbox.answer(&id, &GivenAnswer::yes(), nobody, AnswerRoute::Person).await;
        assert!(refused.unwrap_err().to_string().contains("give a name"));
    }
    answer(&bench, true, None).await;
    assert!(waiting.await.unwrap().is_ok(), "the question stayed open");
}

#[tokio::test]
async fn a_session_that_runs_away_leaves_room_for_others() {
    let mut bench = Bench::new().await;
    for n in 0..32 {
        input_required(&bench, &format!(r#"{{"name":"files__read","arguments":{{"n":{n}}}}}"#)).await;
    }
    let refused = bench.admit(CALL, Approve::Always, Elicitation::InputRequired).await.unwrap();
    let Err(CallRefusal::Denied { code, message, .. }) = refused else { panic!("{refused:?}") };
    let limit = "this session has 32 questions open, the most that may be";
    let expected = format!("{limit}: a person must answer some first (`portcullis approvals list`)");
    assert_eq!((code, message), ("approvals-full".to_owned(), expected));
    bench.session = SessionId::new();
    input_required(&bench, CALL).await;
}

#[tokio::test]
async fn a_caller_with_many_sessions_leaves_room_for_other_callers() {
    let mut bench = Bench::new().await;
    for n in 0..64 {
        if n % 16 == 0 {
            bench.session = SessionId::new();
        }
        input_required(&bench, &format!(r#"{{"name":"files__read","arguments":{{"n":{n}}}}}"#)).await;
    }
    bench.session = SessionId::new();
    let refused = bench.admit(CALL, Approve::Always, Elicitation::InputRequired).await.unwrap();
    let Err(CallRefusal::Denied { code, message, .. }) = refused else { panic!("{refused:?}") };
    assert!(code == "approvals-full" && message.starts_with("this caller has 64 questions open"), "{code} {message}");
    bench.principal = "bob".parse().unwrap();
    input_required(&bench, CALL).await;
}

#[tokio::test]
async fn an_answer_whose_giver_goes_away_is_given_all_the_same() {
    let bench = Bench::new().await;
    let waiting = bench.ask(CALL).await;
    let id = bench.inbox.list()[0].id.clone();
    let yes = GivenAnswer::yes();
    let mut answering = Box::pin(bench.inbox.answer(&id, &yes, "test", AnswerRoute::Person));
    assert!(answering.as_mut().now_or_never().is_none());
    drop(answering);
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn what_a_person_reads_is_what_the_source_will_read() {
    let bench = Bench::new().await;
    for spelled in [r#"{"to":"mallory","n":1e999}"#, r#"{"to":"mallory","n":12345678901234567890123}"#] {
        let waiting = bench.ask(&format!(r#"{{"name":"files__read","arguments":{spelled}}}"#)).await;
        assert_eq!(bench.inbox.list()[0].arguments, json!(spelled));
        answer(&bench, true, None).await;
        // The ledger, which keeps bodies here, has it too.
        assert!(waiting.await.unwrap().is_ok());
        assert_eq!(bench.recorded("call.intent").await.last().unwrap()["body"]["arguments"]["body"], json!(spelled));
    }
}

#[tokio::test]
async fn what_may_destroy_is_never_asked_through_the_agent() {
    let mut bench = Bench::new().await;
    let destructive = ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() };
    let open_world = ToolAnnotations { open_world: Some(true), ..ToolAnnotations::default() };
    for (hints, acceptance, through_the_agent) in [
        (ToolAnnotations::default(), Acceptance::Unknown, true),
        (destructive, Acceptance::Unknown, false),
        (open_world, Acceptance::Unknown, false),
        (destructive, Acceptance::Accepted, true),
        (ToolAnnotations::default(), Acceptance::Changed(vec!["description".into()]), false),
    ] {
        bench.hints = hints;
        let case = format!("{hints:?} {acceptance:?}");
        let admitting = bench.admit_accepted(CALL, Approve::Always, Elicitation::InputRequired, acceptance);
        while bench.inbox.list().is_empty() {
            tokio::task::yield_now().await;
        }
        let id = bench.inbox.list()[0].id.clone();
        let by_the_agent = bench.inbox.answer(&id, &GivenAnswer::no(), "agent", AnswerRoute::Agent).await;
        assert_eq!(by_the_agent.is_ok(), through_the_agent, "{case}");
        if !through_the_agent {
            answer(&bench, false, None).await;
        }
        let asked = matches!(admitting.await.unwrap(), Err(CallRefusal::InputRequired(_)));
        assert_eq!(asked, through_the_agent, "{case}");
    }
}

#[tokio::test]
async fn the_reason_says_whether_the_cell_or_the_source_itself_raises_the_risk() {
    let mut bench = Bench::new().await;
    bench.hints = ToolAnnotations { open_world: Some(true), ..ToolAnnotations::default() };
    for (harmless_cell, expected) in [(true, "its own source calls it"), (false, "its source may write")] {
        bench.harmless_cell = harmless_cell;
        let asked = bench.admit(CALL, Approve::Risky, Elicitation::None);
        while bench.inbox.list().is_empty() {
            tokio::task::yield_now().await;
        }
        let reasons = bench.inbox.list()[0].reasons.join("; ");
        assert!(reasons.starts_with(expected), "{reasons}");
        answer(&bench, false, None).await;
        assert!(asked.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_answer_that_comes_as_soon_as_the_question_can_be_seen_is_for_the_call_that_asks() {
    let bench = Bench::new().await;
    let admitting = bench.admit(CALL, Approve::Always, Elicitation::None);
    // Before the question is in the ledger, and before its call listens for an answer.
    while bench.inbox.list().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(answer(&bench, true, None).await.waited);
    assert!(admitting.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_question_is_announced_even_if_its_call_is_given_up_while_it_is_recorded() {
    let bench = Bench::new().await;
    let mut events = bench.inbox.subscribe();
    let admitting = bench.admit(CALL, Approve::Always, Elicitation::None);
    while bench.inbox.list().is_empty() {
        tokio::task::yield_now().await;
    }
    admitting.abort();
    assert!(admitting.await.is_err(), "the question is not in the ledger yet");
    let asked = tokio::time::timeout(Duration::from_secs(60), events.recv()).await;
    assert!(matches!(asked, Ok(Ok(QuestionEvent::Asked(_)))), "{asked:?}");
}

#[tokio::test]
async fn a_question_that_cannot_be_recorded_denies_the_calls_that_joined_it() {
    let bench = Bench::new().await;
    let joined = bench.ask(CALL).await;
    let question = bench.inbox.find(&bench.inbox.list()[0].id).unwrap();
    inbox::withdraw(&question, &bench.inbox.open);
    assert_eq!(code(joined.await.unwrap()), "approval-refused");
    assert!(bench.inbox.list().is_empty());
}

#[tokio::test]
async fn a_call_that_comes_while_an_answer_is_recorded_opens_no_second_question() {
    use inbox::QuestionState::{Approved, Open, Recording};
    let bench = Bench::new().await;
    let first = bench.ask(CALL).await;
    let question = bench.inbox.find(&bench.inbox.list()[0].id).unwrap();
    question.state.send_replace(Recording);
    assert!(bench.inbox.list().is_empty(), "it is answered");
    let mut second = bench.admit(CALL, Approve::Always, Elicitation::None);
    while question.state.receiver_count() < 3 {
        assert!((&mut second).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.inbox.open.lock().len(), 1);
    // The answer could not be recorded, and so is asked for again; the next one covers both calls.
    question.state.send_replace(Open);
    while bench.inbox.list()[0].waiting < 2 {
        tokio::task::yield_now().await;
    }
    question.passes.store(usize::MAX, std::sync::atomic::Ordering::SeqCst);
    question.state.send_replace(Approved {
        scope: inbox::GivenScope::Offered(AnswerScope::Session),
        by: "test".to_owned(),
        grant: None,
    });
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    assert_eq!(bench.recorded("call.asked").await.len(), 1);
}

#[tokio::test]
async fn nobody_answers_under_the_words_by_which_the_broker_names_itself() {
    let bench = Bench::new().await;
    let waiting = bench.ask(CALL).await;
    let id = bench.inbox.list()[0].id.clone();
    for word in ["expiry", "elicitation", " Expiry "] {
        for route in [AnswerRoute::Person, AnswerRoute::Agent] {
            let answered = bench.inbox.answer(&id, &GivenAnswer::no(), word, route).await;
            assert!(matches!(answered, Err(InboxError::Reserved(_))), "{word} {answered:?}");
        }
    }
    assert!(bench.recorded("call.answered").await.is_empty());
    bench.inbox.answer(&id, &GivenAnswer::no(), "expiry desk", AnswerRoute::Person).await.unwrap();
    assert_eq!(code(waiting.await.unwrap()), "approval-refused");
}

#[tokio::test]
async fn a_call_whose_question_expires_while_it_waits_is_not_refused_by_a_person() {
    let bench = Bench::new().await;
    let waiting = bench.ask(CALL).await;
    let id = bench.inbox.list()[0].id.clone();
    // Reading the list after the question has expired ends it in this way.
    bench.inbox.expire(&bench.inbox.find(&id).unwrap());
    assert_eq!(code(waiting.await.unwrap()), "approval-expired");
}

#[tokio::test]
async fn an_event_says_how_long_a_question_stays_open_and_how_many_calls_wait() {
    let bench = Bench::new().await;
    let mut events = bench.inbox.subscribe();
    let one = bench.ask(CALL).await;
    let QuestionEvent::Asked(asked) = events.recv().await.unwrap() else { panic!("nobody has answered") };
    let two = bench.ask(CALL).await;
    assert!(asked.expires_in > 0 && asked.waiting == 1, "{asked:?}");
    answer(&bench, false, None).await;
    let QuestionEvent::Answered { question, .. } = events.recv().await.unwrap() else { panic!("it was answered") };
    assert!(question.expires_in > 0 && question.waiting == 2, "{question:?}");
    assert!(one.await.unwrap().is_err() && two.await.unwrap().is_err());
}

#[tokio::test]
async fn subscriptions_end_with_the_inbox() {
    let bench = Bench::new().await;
    let (mut before, mut asked) = (bench.inbox.subscribe(), bench.inbox.subscribe());
    let waiting = bench.ask(CALL).await;
    asked.recv().await.unwrap();
    bench.inbox.close();
    assert!(matches!(before.recv().await, Ok(QuestionEvent::Asked(_))), "what happened before can still be read");
    assert_eq!(before.recv().await.unwrap_err(), RecvError::Closed);
    assert_eq!(bench.inbox.subscribe().recv().await.unwrap_err(), RecvError::Closed);
    answer(&bench, false, None).await;
    assert_eq!(code(waiting.await.unwrap()), "approval-refused");
}

/// Returns a call whose only argument is a string of this length.
fn large(path: &str, length: usize) -> String {
    json!({ "name": "files__read", "arguments": { "path": path, "text": "x".repeat(length) } }).to_string()
}

#[tokio::test]
async fn the_arguments_of_open_questions_have_a_limit_in_bytes_for_each_session_and_for_all() {
    const MIB: usize = 1024 * 1024;
    let mut bench = Bench::new().await;
    let full = async |bench: &Bench, params: String| {
        code(bench.admit(&params, Approve::Always, Elicitation::InputRequired).await.unwrap())
    };
    assert_eq!(full(&bench, large("/alone", 16 * MIB)).await, "approvals-full");
    let path_of = |n: usize| format!("/{n}");
    for n in 0..4 {
        (bench.session, bench.principal) = (SessionId::new(), format!("caller-{n}").parse().unwrap());
        input_required(&bench, &large(&path_of(n), 15 * MIB)).await;
        assert_eq!(full(&bench, large("/more", 2 * MIB)).await, "approvals-full");
        input_required(&bench, CALL).await;
    }
    (bench.session, bench.principal) = (SessionId::new(), "caller-5".parse().unwrap());
    assert_eq!(full(&bench, large("/fifth", 15 * MIB)).await, "approvals-full");
    // An answer makes room, also in the session that has none.
    let id = bench.inbox.list()[0].id.clone();
    bench.inbox.answer(&id, &GivenAnswer::no(), "test", AnswerRoute::Person).await.unwrap();
    input_required(&bench, &large("/fifth", 15 * MIB)).await;
}

#[tokio::test]
async fn a_form_says_that_large_arguments_are_shortened_and_shows_all_others() {
    let bench = Bench::new().await;
    let refused = bench.admit(&large("/etc/passwd", 3_000_000), Approve::Always, Elicitation::InputRequired).await;
    let Err(CallRefusal::InputRequired(asked)) = refused.unwrap() else { panic!("it asks") };
    let message = asked.as_str();
    let notice = "Arguments (shortened: `portcullis approvals show` has all of them): ";
    let shown = r#"{\"path\":\"/etc/passwd\",\"text\":\"xxx"#;
    assert!(message.contains(&format!("{notice}{shown}")), "{message}");
    assert!(message.contains("…(2999800 characters left out)…") && message.len() < 3000, "{message}");
}
