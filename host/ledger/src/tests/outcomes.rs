//! The outcome of a call is recorded once, whatever else is waiting to be written.

use super::*;
use crate::work::QUEUE;

fn outcome() -> Event {
    Event::new(EventKind::ToolCompleted, json!({"outcome": "ok"}))
}

async fn intended(ledger: &Ledger) -> OutcomeSlot {
    let intent = event(EventKind::CallIntent);
    let (intent, slot) = ledger.intent(intent, None, IntentDurability::BeforeCall).await.unwrap();
    intent.unwrap().durable().await.unwrap();
    slot
}

fn count(dir: &Path, kind: &str) -> usize {
    kinds(dir).iter().filter(|found| *found == kind).count()
}

#[tokio::test]
async fn an_outcome_has_room_where_notes_find_none() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let slots = [intended(&ledger).await, intended(&ledger).await];
    storage.hold();
    let notes = 3 * QUEUE;
    for _ in 0..notes {
        ledger.record(event(EventKind::SourceLog));
    }
    slots.into_iter().for_each(|slot| slot.record(outcome()));
    storage.work();
    ledger.flush().await.unwrap();
    assert_eq!(count(dir.path(), "tool.completed"), 2);
    // Lost records are counted by the next record that is written.
    ledger.append(event(EventKind::SourceLog)).await.unwrap();
    let gaps = records(dir.path()).into_iter().filter(|entry| entry.record.kind == "ledger.gap");
    let lost: u64 = gaps.map(|gap| gap.record.body["lost"].as_u64().unwrap()).sum();
    assert!(lost > 0, "there was no room");
    assert_eq!(count(dir.path(), "source.log") as u64 + lost, notes as u64 + 1);
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_written_is_kept_and_written_once() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let slots = [intended(&ledger).await, intended(&ledger).await];
    storage.fail();
    for slot in slots {
        slot.record(outcome());
        assert!(matches!(ledger.append(event(EventKind::SourceLog)).await, Err(LedgerError::Full(_))));
    }
    let trouble = ledger.trouble().unwrap();
    assert_eq!((trouble.lost, trouble.error.in_general()), (2, "there is no space left for the ledger"));
    storage.work();
    ledger.append(event(EventKind::SourceLog)).await.unwrap();
    assert_eq!(ledger.trouble(), None);
    let found = kinds(dir.path());
    let after: Vec<_> = found.iter().skip(3).map(String::as_str).collect();
    assert_eq!(after, ["ledger.gap", "tool.completed", "tool.completed", "source.log"]);
}

#[tokio::test]
async fn an_outstanding_outcome_is_written_without_waiting_for_another_record() {
    let dir = folder();
    let (storage, setup) = FaultyStorage::new(dir.path());
    let setup = LedgerSetup { retry: Duration::from_millis(10), ..setup };
    let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
    let slot = intended(&ledger).await;
    storage.fail();
    slot.record(outcome());
    assert!(ledger.flush().await.is_err());
    let mut tip = ledger.tip();
    tip.mark_unchanged();
    storage.work();
    tip.changed().await.unwrap();
    assert_eq!(kinds(dir.path()), ["broker.started", "call.intent", "tool.completed"]);
}
