//! Removes old records of the ledger while the broker runs.

use std::sync::Weak;
use std::time::Duration;

use super::Inner;
use crate::call::now_millis;

/// The pause between removals.
const PAUSE: Duration = Duration::from_secs(60 * 60);

/// Removes the records that are older than the configuration in force allows, at once and then every hour, for as long
/// as the broker lives.
pub(super) async fn remove_old_records(broker: Weak<Inner>) {
    loop {
        let in_force = broker.upgrade().map(|broker| broker.context());
        let Some((retention, ledger)) =
            in_force.map(|context| (context.config.ledger.retention, context.ledger.clone()))
        else {
            return;
        };
        if let Some(retention) = retention {
            let age = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
            match ledger.remove_before(now_millis().saturating_sub(age)).await {
                Ok(removal) if removal.records > 0 => {
                    tracing::info!(
                        records = removal.records,
                        chains = removal.chains,
                        "removed old records of the ledger"
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "old records of the ledger cannot be removed"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
