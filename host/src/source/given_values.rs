//! The values that the configuration gives a source: the variables of a program, or the headers for a server.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::SourceError;
use super::pipe::RedactedValues;
use crate::call::Cause;
use crate::secret::{ConfigValue, SecretError, SecretStore};

/// The values that a source is given, by name. They are read for each connection, so that a source that starts again
/// gets the secrets that are set then.
#[derive(Debug, Clone)]
pub(crate) struct GivenValues {
    listed: BTreeMap<String, ConfigValue>,
    secrets: SecretStore,
}

impl GivenValues {
    /// Takes the values as listed; reads no secret yet.
    pub(crate) fn new(listed: &BTreeMap<String, ConfigValue>, secrets: &SecretStore) -> Self {
        Self { listed: listed.clone(), secrets: secrets.clone() }
    }

    /// Returns the values, with the secrets that are set now.
    ///
    /// # Errors
    /// [`SecretError`] if one of the secrets is not set, or none can be read.
    pub(crate) fn read(&self) -> Result<Vec<(String, SecretString)>, SecretError> {
        self.listed.iter().map(|(name, value)| Ok((name.clone(), self.secrets.resolve(value)?))).collect()
    }

    /// Returns the values for a program that starts now, and those among them that must not reach its log.
    ///
    /// # Errors
    /// [`SourceError::Start`], as for [`read`](Self::read).
    pub(crate) fn for_start(&self) -> Result<(Vec<(String, String)>, RedactedValues), SourceError> {
        let values = self.read().map_err(|error| SourceError::Start(Cause::of(error)))?;
        let values: Vec<_> = values.into_iter().map(|(name, value)| (name, value.expose_secret().to_owned())).collect();
        let is_secret = |name: &str| matches!(self.listed.get(name), Some(ConfigValue::Secret(_)));
        let secrets = values.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.as_str());
        let redacted = RedactedValues::new(secrets);
        Ok((values, redacted))
    }
}
