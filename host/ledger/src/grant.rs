//! Grants: remembered answers, each bound to exactly the approved calls.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use portcullis_core::call::{SessionId, now_millis};
use portcullis_core::digest::Digest;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, named_params};

use super::{Event, Ledger, LedgerError};

/// The facts to which a grant is bound. A change of any of them voids the grant, but that it also covers a call with fewer
/// reasons.
#[derive(Debug, Clone)]
pub struct GrantBinding {
    /// The calling principal.
    pub principal: String,
    /// The identity of the source, which is more than its name.
    pub source: String,
    /// The digest of the tool's definition.
    pub definition: Digest,
    /// The tool's name at the source.
    pub tool: String,
    /// The digest of the policies in force and of the caller's profile.
    pub policies: Digest,
    /// The digest of the canonical arguments.
    pub arguments: Digest,
    /// The session of the call.
    pub session: SessionId,
    /// The digests of the reasons for which a person is asked. There is at least one.
    pub reasons: BTreeSet<Digest>,
}

/// The scope of an answer beyond the call that it was given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// One later call with exactly these arguments.
    Arguments,
    /// This tool with any arguments, in this session.
    Session,
    /// This tool with any arguments, for this principal.
    Principal,
}

impl GrantScope {
    /// Returns the word that plugins, the command line and the ledger use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Arguments => "arguments",
            Self::Session => "session",
            Self::Principal => "principal",
        }
    }

    fn read(word: &str) -> Option<Self> {
        [Self::Arguments, Self::Session, Self::Principal].into_iter().find(|scope| scope.as_str() == word)
    }
}

/// A grant: an answer that counts for later calls.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ApprovalGrant {
    /// The grant's identifier, a ULID.
    pub id: String,
    /// As in [`GrantBinding`].
    pub principal: String,
    /// As in [`GrantBinding`].
    pub source: String,
    /// As in [`GrantBinding`].
    pub definition: Digest,
    /// As in [`GrantBinding`].
    pub tool: String,
    /// As in [`GrantBinding`].
    pub policies: Digest,
    /// The scope of the grant.
    pub scope: GrantScope,
    /// The arguments that the grant covers, or `None` for any.
    pub arguments: Option<Digest>,
    /// The session that the grant covers, or `None` for any.
    pub session: Option<String>,
    /// 128 random bits, so that no two grants are equal and none can be predicted.
    pub nonce: String,
    /// The time at which the grant was given, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// The time at which the grant expires, in milliseconds since the Unix epoch.
    pub expires_at: u64,
    /// The number of uses that are left, or `None` if there is no limit until the grant expires.
    pub uses_left: Option<u32>,
    /// The reasons for which the person was asked, as in [`GrantBinding`]. The grant covers calls with these or fewer.
    pub reasons: BTreeSet<Digest>,
}

impl ApprovalGrant {
    /// Creates a grant that is valid for `valid_for` from now. A grant for exact arguments has a single use, whatever
    /// `uses` is.
    ///
    /// # Errors
    /// If the system's random number generator fails.
    pub fn new(
        binding: &GrantBinding,
        scope: GrantScope,
        valid_for: Duration,
        uses: Option<NonZeroU32>,
    ) -> Result<Self, getrandom::Error> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)?;
        let created_at = now_millis();
        let valid_for = u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            id: ulid::Ulid::generate().to_string(),
            principal: binding.principal.clone(),
            source: binding.source.clone(),
            definition: binding.definition,
            tool: binding.tool.clone(),
            policies: binding.policies,
            scope,
            arguments: (scope == GrantScope::Arguments).then_some(binding.arguments),
            session: (scope == GrantScope::Session).then(|| binding.session.to_string()),
            nonce: nonce.iter().map(|byte| format!("{byte:02x}")).collect(),
            created_at,
            expires_at: created_at.saturating_add(valid_for),
            uses_left: if scope == GrantScope::Arguments { Some(1) } else { uses.map(NonZeroU32::get) },
            reasons: binding.reasons.clone(),
        })
    }
}

impl Ledger {
    /// Stores a grant, after the records that name its giver. It is stored before them as one that is not valid: where
    /// no grant can be stored, nothing is recorded of one.
    ///
    /// # Errors
    /// As for [`Ledger::append`]; the grant is then not valid.
    pub async fn add_grant(
        &self,
        grant: ApprovalGrant,
        events: impl IntoIterator<Item = Event>,
    ) -> Result<(), LedgerError> {
        let not_valid = ApprovalGrant { expires_at: 0, ..grant.clone() };
        self.state(move |conn| put(conn, &not_valid)).await?;
        for event in events {
            self.append(event).await?;
        }
        self.state(move |conn| put(conn, &grant)).await
    }
}

/// One use of a grant by one call.
#[derive(Debug, Clone)]
pub struct GrantUse {
    /// The grant's id.
    pub grant: String,
    /// The facts of the call, which the grant must cover at the moment of use.
    pub binding: GrantBinding,
}

/// The condition for the rows that cover a call now: an answer counts for no reason that the person was not told. A
/// grant whose creation lies in the future was given before the clock was set back, and must not live longer for that;
/// one minute is allowed, since clocks are adjusted by seconds all the time.
macro_rules! covers {
    () => {
        "principal = :principal AND source = :source AND definition = :definition AND tool = :tool \
         AND policies = :policies AND (arguments IS NULL OR arguments = :arguments) \
         AND (session IS NULL OR session = :session) AND (scope <> 'arguments' OR arguments IS NOT NULL) \
         AND (scope <> 'session' OR session IS NOT NULL) AND created_at <= :now + 60000 AND expires_at > :now \
         AND (uses_left IS NULL OR uses_left > 0) AND NOT EXISTS (SELECT 1 FROM json_each(:reasons) AS asked \
         WHERE asked.value NOT IN (SELECT value FROM json_each(grants.reasons)))"
    };
}

pub(super) fn matching(conn: &Connection, binding: &GrantBinding) -> rusqlite::Result<Vec<ApprovalGrant>> {
    let mut query =
        conn.prepare_cached(concat!("SELECT * FROM grants WHERE ", covers!(), " ORDER BY created_at, rowid"))?;
    let rows = query.query_map(
        named_params! {
            ":principal": binding.principal, ":source": binding.source, ":definition": binding.definition.to_string(),
            ":tool": binding.tool, ":policies": binding.policies.to_string(),
            ":arguments": binding.arguments.to_string(), ":session": binding.session.as_str(), ":now": sql(now_millis()),
            ":reasons": json(&binding.reasons),
        },
        read,
    )?;
    rows.collect()
}

/// Takes one use of a grant; returns false if the grant does not, or no longer does, cover the call.
pub(super) fn consume(conn: &Connection, consume: &GrantUse) -> rusqlite::Result<bool> {
    // The time is taken when nobody else writes any more: the wait for that may be longer than the grant lives.
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let binding = &consume.binding;
    let mut update =
        conn.prepare_cached(concat!("UPDATE grants SET uses_left = uses_left - 1 WHERE id = :id AND ", covers!()))?;
    let changed = update.execute(named_params! {
        ":id": consume.grant, ":principal": binding.principal, ":source": binding.source,
        ":definition": binding.definition.to_string(), ":tool": binding.tool, ":policies": binding.policies.to_string(),
        ":arguments": binding.arguments.to_string(), ":session": binding.session.as_str(), ":now": sql(now_millis()),
        ":reasons": json(&binding.reasons),
    })?;
    drop(update);
    transaction.commit()?;
    Ok(changed == 1)
}

fn put(conn: &Connection, grant: &ApprovalGrant) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO grants (id, principal, source, definition, tool, policies, scope, arguments, session, nonce, \
         created_at, expires_at, uses_left, reasons) VALUES (:id, :principal, :source, :definition, :tool, :policies, :scope, \
         :arguments, :session, :nonce, :created_at, :expires_at, :uses_left, :reasons)",
    )?;
    insert.execute(named_params! {
        ":id": grant.id, ":principal": grant.principal, ":source": grant.source,
        ":definition": grant.definition.to_string(), ":tool": grant.tool, ":policies": grant.policies.to_string(),
        ":scope": grant.scope.as_str(), ":arguments": grant.arguments.map(|digest| digest.to_string()),
        ":session": grant.session, ":nonce": grant.nonce, ":created_at": sql(grant.created_at),
        ":expires_at": sql(grant.expires_at), ":uses_left": grant.uses_left,
        ":reasons": json(&grant.reasons),
    })?;
    Ok(())
}

pub(super) fn delete_expired(conn: &Connection) -> rusqlite::Result<usize> {
    conn.execute("DELETE FROM grants WHERE expires_at <= ?1", [sql(now_millis())])
}

fn read(row: &Row<'_>) -> rusqlite::Result<ApprovalGrant> {
    Ok(ApprovalGrant {
        id: row.get("id")?,
        principal: row.get("principal")?,
        source: row.get("source")?,
        definition: parsed(row, "definition", |text| text.parse().ok())?,
        tool: row.get("tool")?,
        policies: parsed(row, "policies", |text| text.parse().ok())?,
        scope: parsed(row, "scope", GrantScope::read)?,
        arguments: match row.get::<_, Option<String>>("arguments")? {
            Some(_) => Some(parsed(row, "arguments", |text| text.parse().ok())?),
            None => None,
        },
        session: row.get("session")?,
        nonce: row.get("nonce")?,
        created_at: row.get::<_, i64>("created_at")?.cast_unsigned(),
        expires_at: row.get::<_, i64>("expires_at")?.cast_unsigned(),
        uses_left: row.get("uses_left")?,
        reasons: parsed(row, "reasons", |text| serde_json::from_str(text).ok())?,
    })
}

fn json(reasons: &BTreeSet<Digest>) -> String {
    serde_json::json!(reasons).to_string()
}

fn parsed<T>(row: &Row<'_>, column: &str, parse: impl FnOnce(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| rusqlite::Error::InvalidColumnName(format!("grants.{column} holds {text:?}")))
}

/// Converts a time to SQLite's signed integers; no real clock exceeds them.
fn sql(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
