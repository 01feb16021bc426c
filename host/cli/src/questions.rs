//! Questions as the person who started a broker sees them on its standard error, in addition to every other way to be
//! asked.

use portcullis::broker::Broker;
use portcullis::gate::QuestionEvent;
use tokio::sync::broadcast::error::RecvError;

use crate::output::{self, BOLD, escape_hidden};

/// Prints each question as soon as it is open, and its answer, for as long as the broker runs. The arguments are left
/// out, since standard error is often kept in a log.
pub(crate) async fn print(broker: Broker) {
    let mut events = broker.inbox().subscribe();
    loop {
        match events.recv().await {
            Ok(event) => output::message(&line(&event, &broker.config().data_dir_switch())),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

fn line(event: &QuestionEvent, switch: &str) -> String {
    match event {
        QuestionEvent::Asked(asked) => {
            let reasons = asked.reasons.join("; ");
            let name = match asked.name.as_str() {
                "" => &asked.method,
                // A log has no payload.
                _ if asked.recorded_tool != asked.tool => &asked.recorded_tool,
                _ => &asked.name,
            };
            format!(
                "{BOLD}question{BOLD:#} {}: may `{}` of source `{}` run for {}? {}; answer with `portcullis approvals{switch} --watch` or \
                 `portcullis approvals{switch} approve {}`",
                asked.id,
                escape_hidden(name),
                escape_hidden(&asked.source),
                escape_hidden(&asked.principal),
                escape_hidden(&reasons),
                asked.id
            )
        }
        QuestionEvent::Answered { question, approved, by, .. } => {
            let word = if *approved { "approved" } else { "refused" };
            format!("question {}: {word} by {}", question.id, escape_hidden(by))
        }
        _ => String::new(),
    }
}
