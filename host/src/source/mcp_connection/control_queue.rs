//! The queue of messages that are sent in addition to requests: cancellations, and answers to the source's requests.
//! Only the source can delay it, and it delays nothing else.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::protocol::Message;
use crate::source::transport::Transport;

/// An entry of the control queue.
pub(super) enum QueuedMessage {
    Send(Message),
    /// Signals that everything queued before it has been sent.
    Flushed(oneshot::Sender<()>),
}

/// Sends the queued messages, in order, until the connection is dropped.
pub(super) async fn run(transport: Arc<dyn Transport>, mut queue: mpsc::Receiver<QueuedMessage>) {
    while let Some(message) = queue.recv().await {
        match message {
            QueuedMessage::Send(message) => {
                if let Err(error) = transport.send(&message).await {
                    tracing::debug!(%error, "a short message to a source was not sent");
                }
            }
            // The waiting side may be gone already.
            QueuedMessage::Flushed(done) => drop(done.send(())),
        }
    }
}
