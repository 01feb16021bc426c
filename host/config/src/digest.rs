//! Digests of configurations. They are made from the serialized values, in which a secret is its name.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::digest::Digest;
use portcullis_core::name::{ProfileName, SourceName};
use serde::{Serialize, Serializer};

use super::{
    Config, LedgerConfig, PluginConfig, ProfileConfig, QuestionsConfig, RemoteSinkConfig, ServeConfig, SourceConfig,
    TelemetryConfig, serve,
};

/// The values of a configuration that count in its digest. [`Config`] cannot be serialized itself, because nothing else
/// may write it.
#[derive(Serialize)]
struct DigestedConfig<'a> {
    file: Option<SerializedPath<'a>>,
    data_dir: SerializedPath<'a>,
    state_dir: Option<SerializedPath<'a>>,
    serve: ServeConfig,
    questions: &'a QuestionsConfig,
    telemetry: &'a Option<TelemetryConfig>,
    ask_timeout: Duration,
    ledger: &'a LedgerConfig,
    max_message: usize,
    plugin_keys: Vec<SerializedPath<'a>>,
    sources: &'a BTreeMap<SourceName, SourceConfig>,
    disabled: &'a BTreeMap<SourceName, SourceConfig>,
    policies: &'a [PluginConfig],
    transforms: &'a [PluginConfig],
    approvals: &'a [PluginConfig],
    sinks: &'a [PluginConfig],
    remote_sinks: &'a [RemoteSinkConfig],
    profiles: &'a BTreeMap<ProfileName, ProfileConfig>,
}

impl Config {
    /// Returns the digest of the configuration, as records of the ledger name it. Secrets count by their names. The
    /// address to listen on does not count, because `serve --listen` changes it for one start.
    #[doc(hidden)]
    #[must_use]
    pub fn digest(&self) -> Digest {
        // Every field is named, so that the compiler refuses a new one that is not in the digest.
        let Self {
            file,
            data_dir,
            state_dir,
            serve,
            questions,
            telemetry,
            ask_timeout,
            ledger,
            max_message,
            plugin_keys,
            sources,
            disabled,
            policies,
            transforms,
            approvals,
            sinks,
            remote_sinks,
            profiles,
        } = self;
        Digest::of_serialized(&DigestedConfig {
            file: file.as_deref().map(SerializedPath),
            data_dir: SerializedPath(data_dir),
            state_dir: state_dir.as_deref().map(SerializedPath),
            serve: ServeConfig { listen: serve::LISTEN, ..serve.clone() },
            questions,
            telemetry,
            ask_timeout: *ask_timeout,
            ledger,
            max_message: *max_message,
            plugin_keys: plugin_keys.iter().map(|path| SerializedPath(path)).collect(),
            sources,
            disabled,
            policies,
            transforms,
            approvals,
            sinks,
            remote_sinks,
            profiles,
        })
    }
}

/// A path as it counts in a digest: its text, or its bytes if it is not UTF-8.
struct SerializedPath<'a>(&'a Path);

impl Serialize for SerializedPath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.serialize_bytes(self.0.as_os_str().as_encoded_bytes()),
        }
    }
}

/// Serializes a path. Serde's own way refuses a path that is not UTF-8.
pub(super) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    SerializedPath(path).serialize(serializer)
}

/// Serializes the paths of an option or a list, as [`path`] does.
pub(super) fn paths<'a, S: Serializer>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.into_iter().map(|path| SerializedPath(path)))
}

/// Serializes a value as the text that it displays.
pub(super) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes the values of an option or a list, as [`text`] does.
pub(super) fn texts<'a, T: Display + 'a, S: Serializer>(
    values: impl IntoIterator<Item = &'a T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.into_iter().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const TEXT: &str = r#"
        [broker]
        data-dir = "state"
        [serve]
        token = { secret = "front" }
        [sources.files]
        command = ["/bin/files"]
        cwd = "."
        env = { LEVEL = "info" }
        cell = { read = ["docs"], cpu = 1.5 }
        [sources.calc]
        component = "calc.wasm"
        [[policies]]
        plugin = "builtin:rules"
        settings = { deny = ["*"] }
        [ledger]
        witnesses = ["/mnt/witness"]
    "#;

    fn digest(text: &str, file: &Path) -> Digest {
        Config::parse(text, file).unwrap().digest()
    }

    #[test]
    fn equal_configurations_have_one_digest_and_a_changed_value_another() {
        let file = Path::new("/etc/portcullis.toml");
        let before = digest(TEXT, file);
        assert_eq!(digest(TEXT, file), before);
        let changes = [
            ("state", "state2"),
            ("secret = \"front\"", "secret = \"back\""),
            ("/bin/files", "/bin/file"),
            ("cwd = \".\"", "cwd = \"..\""),
            ("info", "debug"),
            ("docs", "doc"),
            ("1.5", "1.25"),
            ("calc.wasm", "calc2.wasm"),
            ("deny", "ask"),
            ("/mnt/witness", "/mnt/other"),
        ];
        for (from, to) in changes {
            assert_ne!(digest(&TEXT.replace(from, to), file), before, "{from} -> {to}");
        }
        assert_ne!(digest(TEXT, Path::new("/srv/portcullis.toml")), before);
    }

    #[test]
    fn the_address_to_listen_on_is_not_in_the_digest() {
        let mut config = Config::parse(TEXT, Path::new("/etc/portcullis.toml")).unwrap();
        let before = config.digest();
        config.serve.listen.set_port(1);
        assert_eq!(config.digest(), before);
    }

    #[test]
    fn paths_that_are_not_utf8_are_in_the_digest() {
        let in_folder = |folder: &[u8]| digest(TEXT, &Path::new(OsStr::from_bytes(folder)).join("portcullis.toml"));
        assert_ne!(in_folder(b"/etc/\xff"), in_folder(b"/etc/\xfe"));
    }
}
