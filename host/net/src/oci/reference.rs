//! References to components: `oci://registry/name@sha256:…`

use std::fmt;
use std::str::FromStr;

use portcullis_core::digest::Digest;
use url::{Host, Url};

use crate::egress::is_host;

/// The longest name of a repository that registries accept, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The longest tag, in bytes (distribution-spec, "Pulling manifests").
const MAX_TAG_BYTES: usize = 128;

/// A reference to a component: a registry, the name of a repository in it, and a tag, the digest of a manifest, or
/// both. If there is a digest, it decides, and the tag only informs people. It is displayed as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentReference {
    registry: String,
    name: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The error for an invalid reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write it like \"oci://registry.example.com/name@sha256:…\"")]
pub struct ReferenceError(&'static str);

impl ComponentReference {
    /// Returns the digest of the manifest, if the reference has one.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the registry: a host, with a port if it is written.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the reference with this digest in addition to its tag.
    #[must_use]
    pub fn pinned_to(self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tag that the registry is asked for if no digest is known.
    pub(super) fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or("latest")
    }

    /// Returns the base URL of the registry's API. It uses TLS unless the registry is on this machine.
    pub(super) fn base(&self) -> Option<Url> {
        let url = |scheme| Url::parse(&format!("{scheme}://{}/v2/", self.registry)).ok();
        let here = match url("http")?.host()? {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        url(if here { "http" } else { "https" })
    }
}

impl fmt::Display for ComponentReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, name, tag, digest } = self;
        write!(f, "oci://{registry}/{name}")?;
        tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

impl FromStr for ComponentReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let rest = text.strip_prefix("oci://").ok_or(ReferenceError("it does not begin with `oci://`"))?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => {
                (rest, Some(digest.parse().map_err(|_| ReferenceError("its digest is not valid"))?))
            }
            None => (rest, None),
        };
        let (registry, path) = rest.split_once('/').ok_or(ReferenceError("it names no repository"))?;
        let (name, tag) = path.split_once(':').map_or((path, None), |(name, tag)| (name, Some(tag)));
        let refuse = |good: bool, what| if good { Ok(()) } else { Err(ReferenceError(what)) };
        refuse(is_registry(registry), "its registry is not `host` or `host:port`")?;
        refuse(is_name(name), "the name of its repository is not valid")?;
        refuse(tag.is_none_or(is_tag), "its tag is not valid")?;
        refuse(tag.is_some() || digest.is_some(), "it has neither digest nor tag")?;
        let (registry, name, tag) = (registry.to_ascii_lowercase(), name.to_owned(), tag.map(str::to_owned));
        Ok(Self { registry, name, tag, digest })
    }
}

fn is_registry(text: &str) -> bool {
    match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0),
        None => is_host(text),
    }
}

/// Reports whether a name consists of words of lower-case letters and digits, with `.`, `_`, `__` or dashes within
/// them.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let word = |word: &str| {
        let bytes = word.as_bytes();
        let bounded = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| inner(*first) && inner(*last));
        let allowed = bytes.iter().all(|byte| inner(*byte) || matches!(byte, b'.' | b'_' | b'-'));
        bounded && allowed && !word.contains("..") && !word.contains("___")
    };
    name.len() <= MAX_NAME_BYTES && name.split('/').all(word)
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG_BYTES).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn references_read_back_as_they_are_written() {
        for (text, base) in [
            (format!("oci://registry.example.com/team/calc@{DIGEST}"), "https://registry.example.com/v2/"),
            (format!("oci://registry.example.com/calc:1.2_b-3@{DIGEST}"), "https://registry.example.com/v2/"),
            ("oci://127.0.0.1:5000/calc__x.y--z:latest".to_owned(), "http://127.0.0.1:5000/v2/"),
            ("oci://localhost/calc:1".to_owned(), "http://localhost/v2/"),
            ("oci://[::1]:5000/calc:1".to_owned(), "http://[::1]:5000/v2/"),
            ("oci://10.0.0.1/calc:1".to_owned(), "https://10.0.0.1/v2/"),
        ] {
            let reference: ComponentReference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
            assert_eq!(reference.base().unwrap().as_str(), base);
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_reference() {
        for text in [
            "oci://registry.example.com/calc",
            "oci://registry.example.com",
            "oci://user@registry.example.com/calc:1",
            "oci://registry.example.com:0/calc:1",
            "oci://0x7f.1/calc:1",
            "oci:///calc:1",
            "oci://registry.example.com/../calc:1",
            "oci://registry.example.com/Calc:1",
            "oci://registry.example.com/a//b:1",
            "oci://registry.example.com/-a:1",
            "oci://registry.example.com/a..b:1",
            "oci://registry.example.com/a:b/c",
            "oci://registry.example.com/a:",
            "oci://registry.example.com/a:.b",
            "oci://registry.example.com/a?b:1",
            "oci://registry.example.com/a@sha256:9f86",
            "https://registry.example.com/a:1",
        ] {
            let error = text.parse::<ComponentReference>().unwrap_err().to_string();
            assert!(error.contains("oci://registry.example.com/name@sha256:"), "{text}: {error}");
        }
    }
}
