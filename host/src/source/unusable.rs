//! A source that cannot be created as configured, for example because its secret is not set or its component cannot be
//! loaded. Every request to it fails; other sources are not affected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CallEventSender, ConnectionHealth, Discovery, ListedDefinitions, Source, SourceClient, SourceError, SourceStatus,
};
use crate::call::{Cause, Outcome};
use crate::gate::Permit;
use crate::item::ItemKind;

/// A source that cannot be created as configured.
#[derive(Debug)]
pub(crate) struct UnusableSource {
    cause: Cause,
}

impl UnusableSource {
    pub(crate) fn new(cause: Cause) -> Self {
        Self { cause: cause.then("; correct this, then reload the configuration or start the broker again") }
    }

    fn error(&self) -> SourceError {
        SourceError::Start(self.cause.clone())
    }
}

#[async_trait]
impl Source for UnusableSource {
    async fn discover(&self, _: &Arc<dyn SourceClient>) -> Result<Discovery, SourceError> {
        Err(self.error())
    }

    async fn list(&self, _: &Arc<dyn SourceClient>, _: ItemKind) -> Result<ListedDefinitions, SourceError> {
        Err(self.error())
    }

    async fn call(&self, _: Permit, _: &Arc<dyn SourceClient>, _: CallEventSender) -> Outcome {
        Outcome::NotSent(self.cause.clone())
    }

    async fn notify(&self, _: Permit, _: &Arc<dyn SourceClient>) -> Result<(), SourceError> {
        Err(self.error())
    }

    fn health(&self) -> ConnectionHealth {
        ConnectionHealth {
            status: SourceStatus::Failed,
            error: Some(self.cause.to_string()),
            ..ConnectionHealth::default()
        }
    }

    async fn restart(&self, _: &str, _: Duration) -> Result<SourceStatus, SourceError> {
        Err(self.error())
    }

    async fn close(&self) {}
}
