//! The stand-in for [`Bearer`] in a program without the feature `oauth`: nobody can have logged in.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use reqwest::Response;
use secrecy::SecretString;
use url::Url;

use crate::egress::Reach;
use crate::name::SourceName;

/// The login of a source, which cannot be constructed.
#[derive(Debug)]
pub(crate) enum Bearer {}

impl Bearer {
    /// Returns nothing: a login that is kept is not sent.
    pub(crate) fn kept(_: &SourceName, _: &Url, _: Reach, _: &Path) -> Result<Option<Arc<Self>>, Infallible> {
        Ok(None)
    }

    /// Returns the token to send.
    #[expect(clippy::unused_async, reason = "it stands for a function that waits")]
    pub(crate) async fn token(self: &Arc<Self>) -> Option<SecretString> {
        match **self {}
    }

    /// Reports whether somebody has logged in.
    pub(crate) fn has_login(&self) -> bool {
        match *self {}
    }

    /// Returns the token with which to retry once.
    #[expect(clippy::unused_async, reason = "it stands for a function that waits")]
    pub(crate) async fn refused(self: &Arc<Self>, _: &Response, _: Option<&SecretString>) -> Option<SecretString> {
        match **self {}
    }

    /// Returns what a person does about a refusal.
    pub(crate) fn advice(&self, _: &Response) -> Option<String> {
        match *self {}
    }

    /// Waits for a renewal in progress.
    #[expect(clippy::unused_async, reason = "it stands for a function that waits")]
    pub(crate) async fn finish_renewal(&self) {
        match *self {}
    }
}
