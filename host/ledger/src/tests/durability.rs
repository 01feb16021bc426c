//! Intents that their calls do not wait for: which may be lost, and when a call waits nevertheless.

use super::*;

fn completed() -> Event {
    Event::new(EventKind::ToolCompleted, json!({"outcome": "ok"}))
}

async fn queued(ledger: &Ledger, consume: Option<GrantUse>) -> (Option<PendingIntent>, OutcomeSlot) {
    ledger.intent(event(EventKind::CallIntent), consume, IntentDurability::Queued).await.unwrap()
}

/// Returns the report of the only chain of a ledger.
fn report(dir: &Path) -> ChainReport {
    verify(dir).unwrap().chains.remove(0)
}

#[tokio::test]
async fn an_intent_that_nobody_waits_for_is_written_in_its_order_and_says_so() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    storage.hold();
    // Nothing can be written at the moment, so that a call which waited would wait for ever.
    let (intent, slot) = queued(&ledger, None).await;
    assert!(intent.is_none());
    slot.record(completed());
    storage.work();
    intend(&ledger, event(EventKind::CallIntent), None).await.unwrap();
    ledger.close().await;
    let records = records(dir.path());
    let found: Vec<_> =
        records.iter().map(|entry| (&*entry.record.kind, entry.record.body.get("durability"))).collect();
    let expected = [
        ("broker.started", None),
        ("call.intent", Some(&json!("queued"))),
        ("tool.completed", None),
        ("call.intent", None),
        ("broker.stopped", None),
    ];
    assert_eq!(found, expected);
    let report = report(dir.path());
    assert!(report.queued_intents && !report.may_miss_calls(), "a chain that has its end misses nothing");
}

#[tokio::test]
async fn an_intent_that_nobody_waits_for_is_kept_until_it_can_be_written_and_later_calls_are_refused() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    storage.fail();
    let (intent, slot) = queued(&ledger, None).await;
    assert!(intent.is_none());
    assert!(matches!(ledger.flush().await, Err(LedgerError::Full(_))));
    slot.record(completed());
    let (intent, _slot) = queued(&ledger, None).await;
    let refused = intent.expect("a ledger that cannot be written is waited for").durable().await;
    assert!(matches!(refused, Err(LedgerError::Full(_))));
    storage.work();
    ledger.append(event(EventKind::SourceLog)).await.unwrap();
    let expected = ["broker.started", "ledger.gap", "call.intent", "tool.completed", "source.log"];
    assert_eq!(kinds(dir.path()), expected);
    assert!(queued(&ledger, None).await.0.is_none(), "it can be written again");
}

#[tokio::test]
async fn a_ledger_that_is_not_in_its_place_is_waited_for() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let segment = segment(dir.path(), ledger.chain());
    std::fs::rename(&segment, segment.with_extension("moved")).unwrap();
    let (intent, _slot) = queued(&ledger, None).await;
    let refused = intent.expect("it was moved").durable().await;
    assert!(matches!(refused, Err(LedgerError::Moved(_))));
}

#[tokio::test]
async fn a_ledger_that_is_moved_while_calls_do_not_wait_is_noticed() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    assert!(queued(&ledger, None).await.0.is_none(), "it was just found in its place");
    let segment = segment(dir.path(), ledger.chain());
    std::fs::rename(&segment, segment.with_extension("moved")).unwrap();
    let waits = async {
        loop {
            match queued(&ledger, None).await.0 {
                Some(intent) => return intent.durable().await,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap();
    assert!(matches!(refused, Err(LedgerError::Moved(_))), "{refused:?}");
}

#[tokio::test]
async fn a_call_that_uses_up_a_grant_waits() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let binding = grants::binding();
    let grant = ApprovalGrant::new(&binding, GrantScope::Arguments, Duration::from_secs(60), None).unwrap();
    ledger.add_grant(grant.clone(), [event(EventKind::GrantAdded)]).await.unwrap();
    let consume = Some(GrantUse { grant: grant.id, binding });
    let (intent, _slot) = queued(&ledger, consume).await;
    intent.expect("it uses up a grant").durable().await.unwrap();
    let last = records(dir.path()).pop().unwrap();
    assert_eq!((&*last.record.kind, last.record.body.get("durability")), ("call.intent", None));
}

#[tokio::test]
async fn verification_says_that_calls_may_be_missing_from_a_chain_without_an_end() {
    for (durability, may_miss) in [(IntentDurability::Queued, true), (IntentDurability::BeforeCall, false)] {
        let dir = folder();
        let ledger = open(dir.path()).await;
        let _ = ledger.intent(event(EventKind::CallIntent), None, durability).await.unwrap();
        ledger.flush().await.unwrap();
        assert!(!report(dir.path()).may_miss_calls(), "its broker lives");
        drop(ledger);
        writing::wait_for_end(dir.path()).await;
        let report = report(dir.path());
        assert_eq!((report.stopped, report.may_miss_calls()), (false, may_miss));
        // The next broker seals the chain, and missing records stay missing.
        open(dir.path()).await.close().await;
        assert_eq!(verify(dir.path()).unwrap().chains[0].may_miss_calls(), may_miss);
    }
}
