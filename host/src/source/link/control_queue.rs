//! What is said beside requests: that a call is cancelled, answers to what a source asks. It waits for the source alone, and holds
//! nobody up.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::protocol::Message;
use crate::source::transport::Transport;

/// Something short that is said when the source takes it.
pub(super) enum ControlMessage {
    Say(Message),
    /// Whoever waits until all before it has been said.
    Said(oneshot::Sender<()>),
}

/// Says what is queued, in its order, until the connection is dropped.
pub(super) async fn run(transport: Arc<dyn Transport>, mut queue: mpsc::Receiver<ControlMessage>) {
    while let Some(message) = queue.recv().await {
        match message {
            ControlMessage::Say(message) => {
                if let Err(error) = transport.send(&message).await {
                    tracing::debug!(%error, "a short message to a source was not sent");
                }
            }
            // Nobody may wait any more.
            ControlMessage::Said(done) => drop(done.send(())),
        }
    }
}
