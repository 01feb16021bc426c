//! What tests share: a caller who is nobody, and does not listen.

use std::sync::Arc;

use super::{Client, Onlooker, Relay};

pub(crate) fn nobody() -> Arc<dyn Client> {
    Arc::new(Onlooker)
}

pub(crate) fn silent() -> Relay {
    Relay { token: None, out: tokio::sync::mpsc::channel(1).0 }
}
