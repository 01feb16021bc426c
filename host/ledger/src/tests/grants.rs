//! A grant covers only the approved calls.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn binding() -> GrantBinding {
    GrantBinding {
        principal: "local".into(),
        source: "files".into(),
        definition: Digest::of(b"definition"),
        tool: "write".into(),
        policies: Digest::of(b"policies"),
        arguments: Digest::of(b"arguments"),
        session: SessionId::new(),
        reasons: BTreeSet::from([Digest::of(b"reason")]),
    }
}

async fn add(ledger: &Ledger, grant: &ApprovalGrant) {
    ledger.add_grant(grant.clone(), [event(EventKind::GrantAdded)]).await.unwrap();
}

async fn used(ledger: &Ledger, grant: &ApprovalGrant, binding: &GrantBinding) -> Result<u64, LedgerError> {
    let consume = GrantUse { grant: grant.id.clone(), binding: binding.clone() };
    intend(ledger, event(EventKind::CallIntent), Some(consume)).await
}

#[tokio::test]
async fn any_changed_fact_voids_a_grant() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let bound = binding();
    let by_scope = [GrantScope::Arguments, GrantScope::Session, GrantScope::Principal];
    let grants = by_scope.map(|scope| ApprovalGrant::new(&bound, scope, HOUR, None).unwrap());
    for grant in &grants {
        add(&ledger, grant).await;
    }
    assert_eq!(ledger.grants(&bound).await.unwrap(), grants);

    let other = Digest::of(b"other");
    let all_void: [fn(&mut GrantBinding, Digest); 5] = [
        |b, _| b.principal = "cli".into(),
        |b, _| b.source = "files2".into(),
        |b, other| b.definition = other,
        |b, _| b.tool = "read".into(),
        |b, other| b.policies = other,
    ];
    for change in all_void {
        let mut changed = bound.clone();
        change(&mut changed, other);
        assert_eq!(ledger.grants(&changed).await.unwrap(), []);
        for grant in &grants {
            assert_eq!(used(&ledger, grant, &changed).await, Err(LedgerError::GrantSpent(grant.id.clone())));
        }
    }
    let other_arguments = GrantBinding { arguments: other, ..bound.clone() };
    assert_eq!(ledger.grants(&other_arguments).await.unwrap(), grants[1..]);
    assert!(used(&ledger, &grants[0], &other_arguments).await.is_err());
    let other_session = GrantBinding { session: SessionId::new(), ..bound.clone() };
    assert_eq!(ledger.grants(&other_session).await.unwrap(), [grants[0].clone(), grants[2].clone()]);
    assert!(used(&ledger, &grants[1], &other_session).await.is_err());
    let further = BTreeSet::from([Digest::of(b"reason"), Digest::of(b"further reason")]);
    for reasons in [further, BTreeSet::from([other])] {
        let other_reasons = GrantBinding { reasons, ..bound.clone() };
        assert_eq!(ledger.grants(&other_reasons).await.unwrap(), []);
        for grant in &grants {
            assert!(used(&ledger, grant, &other_reasons).await.is_err());
        }
    }
    assert!(!kinds(dir.path()).contains(&"call.intent".to_owned()), "no intent where the grant was void");
}

#[tokio::test]
async fn an_answer_covers_a_call_with_fewer_reasons() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let fewer = binding();
    let reasons = BTreeSet::from([Digest::of(b"reason"), Digest::of(b"further reason")]);
    let grant =
        ApprovalGrant::new(&GrantBinding { reasons, ..fewer.clone() }, GrantScope::Principal, HOUR, None).unwrap();
    add(&ledger, &grant).await;
    assert_eq!(ledger.grants(&fewer).await.unwrap(), std::slice::from_ref(&grant));
    used(&ledger, &grant, &fewer).await.unwrap();
}

/// Neither a broker of an earlier version that still runs nor a file that it left behind says what was answered.
#[tokio::test]
async fn a_grant_that_does_not_say_what_was_answered_covers_nothing() {
    const INSERT: &str = "INSERT INTO grants (id, principal, source, definition, tool, policies, scope, nonce, created_at, \
        expires_at) VALUES ('01G', ?1, ?2, ?3, ?4, ?5, 'principal', '', 0, 99999999999999)";
    let bound = binding();
    let (definition, policies) = (bound.definition.to_string(), bound.policies.to_string());
    let facts = (&bound.principal, &bound.source, definition, &bound.tool, policies);
    let dir = folder();
    let ledger = open(dir.path()).await;
    shell(dir.path()).execute(INSERT, facts.clone()).unwrap();
    assert_eq!(ledger.grants(&bound).await.unwrap(), []);
    ledger.close().await;

    let dir = folder();
    let conn = shell(dir.path());
    conn.execute_batch(state::SCHEMA_2).unwrap();
    conn.pragma_update(None, "user_version", 2).unwrap();
    conn.execute(INSERT, facts).unwrap();
    assert_eq!(verify(dir.path()).unwrap().findings, [], "a file of the version before is whole");
    let ledger = open(dir.path()).await;
    assert_eq!(ledger.grants(&bound).await.unwrap(), []);
    let grant = ApprovalGrant::new(&bound, GrantScope::Principal, HOUR, None).unwrap();
    add(&ledger, &grant).await;
    assert_eq!(ledger.grants(&bound).await.unwrap(), [grant]);
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good);
}

#[tokio::test]
async fn nothing_is_recorded_of_a_grant_that_cannot_be_stored() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let grant = ApprovalGrant::new(&binding(), GrantScope::Principal, HOUR, None).unwrap();
    let state = dir.path().join("ledger.sqlite");
    std::fs::rename(&state, dir.path().join("elsewhere")).unwrap();
    let events = [event(EventKind::CallAnswered), event(EventKind::GrantAdded)];
    let refused = ledger.add_grant(grant.clone(), events.clone()).await;
    assert!(matches!(refused, Err(LedgerError::Moved(_))), "{refused:?}");
    std::fs::rename(dir.path().join("elsewhere"), &state).unwrap();
    ledger.add_grant(grant, events).await.unwrap();
    assert_eq!(kinds(dir.path())[1..], ["call.answered", "grant.added"]);
}

#[tokio::test]
async fn uses_run_out_and_a_replay_is_refused() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let bound = binding();
    let once = ApprovalGrant::new(&bound, GrantScope::Arguments, HOUR, NonZeroU32::new(9)).unwrap();
    assert_eq!(once.uses_left, Some(1), "exact arguments are single-use");
    let twice = ApprovalGrant::new(&bound, GrantScope::Principal, HOUR, NonZeroU32::new(2)).unwrap();
    for (grant, uses) in [(&once, 1), (&twice, 2)] {
        add(&ledger, grant).await;
        for _ in 0..uses {
            used(&ledger, grant, &bound).await.unwrap();
        }
        assert_eq!(used(&ledger, grant, &bound).await, Err(LedgerError::GrantSpent(grant.id.clone())));
    }
    assert_eq!(ledger.grants(&bound).await.unwrap(), []);
    ledger.close().await;
    assert_eq!(verify(dir.path()).unwrap().verdict, ChainStatus::Good, "a refused intent leaves no gap");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_brokers_that_race_for_one_use_one_wins() {
    let dir = folder();
    let brokers = futures_util::future::join_all((0..4).map(|_| open(dir.path()))).await;
    let bound = binding();
    let grant = ApprovalGrant::new(&bound, GrantScope::Arguments, HOUR, None).unwrap();
    add(&brokers[0], &grant).await;
    let races = (0..32).map(|i| {
        let (broker, grant, bound) = (brokers[i % 4].clone(), grant.clone(), bound.clone());
        tokio::spawn(async move { used(&broker, &grant, &bound).await.is_ok() })
    });
    let won = futures_util::future::join_all(races).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
    assert_eq!(won, 1);
    assert_eq!(kinds(dir.path()).iter().filter(|kind| *kind == "call.intent").count(), 1);
}

#[tokio::test]
async fn expired_grants_do_not_count_and_are_deleted_at_the_next_start() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let bound = binding();
    let grant = ApprovalGrant::new(&bound, GrantScope::Principal, Duration::ZERO, None).unwrap();
    add(&ledger, &grant).await;
    assert_eq!(ledger.grants(&bound).await.unwrap(), []);
    assert!(used(&ledger, &grant, &bound).await.is_err());
    ledger.close().await;
    let count = || -> i64 { shell(dir.path()).query_row("SELECT count(*) FROM grants", [], |row| row.get(0)).unwrap() };
    assert_eq!(count(), 1);
    open(dir.path()).await.close().await;
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn a_grant_that_expires_while_the_file_is_locked_is_not_used() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let bound = binding();
    let grant = ApprovalGrant::new(&bound, GrantScope::Principal, Duration::from_millis(200), None).unwrap();
    add(&ledger, &grant).await;
    let other = shell(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (result, ()) = tokio::join!(used(&ledger, &grant, &bound), async {
        while portcullis_core::call::now_millis() <= grant.expires_at {
            tokio::task::yield_now().await;
        }
        other.execute_batch("ROLLBACK").unwrap();
    });
    assert_eq!(result, Err(LedgerError::GrantSpent(grant.id.clone())));
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_grant_live_longer() {
    let dir = folder();
    let ledger = open(dir.path()).await;
    let bound = binding();
    let mut grant = ApprovalGrant::new(&bound, GrantScope::Principal, HOUR, None).unwrap();
    let later = |millis: u64, by: Duration| millis + u64::try_from(by.as_millis()).unwrap();
    // This is how the grant looks after the clock was set back by two hours.
    (grant.created_at, grant.expires_at) = (later(grant.created_at, HOUR * 2), later(grant.expires_at, HOUR * 2));
    add(&ledger, &grant).await;
    assert_eq!(ledger.grants(&bound).await.unwrap(), []);
    assert!(used(&ledger, &grant, &bound).await.is_err());
    let mut near = ApprovalGrant::new(&bound, GrantScope::Principal, HOUR, None).unwrap();
    near.created_at = later(near.created_at, Duration::from_secs(5));
    add(&ledger, &near).await;
    assert_eq!(ledger.grants(&bound).await.unwrap(), [near], "a clock that was put right by seconds asks nobody again");
}

#[tokio::test]
async fn a_grant_outlives_its_broker() {
    let dir = folder();
    let first = open(dir.path()).await;
    let bound = binding();
    let grant = ApprovalGrant::new(&bound, GrantScope::Principal, HOUR, None).unwrap();
    add(&first, &grant).await;
    first.close().await;
    let second = open(dir.path()).await;
    assert_eq!(second.grants(&bound).await.unwrap(), [grant]);
}
