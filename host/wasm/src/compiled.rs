//! Compiled code. This is the one module with `unsafe`: loading compiled code executes it, so its bytes are
//! authenticated first. The bytes that were checked are the bytes that are loaded; no file is opened twice.
//!
//! Two kinds of code are trusted: code that this broker compiled and cached ([`Cache`]), by a tag under its own key;
//! and code that `portcullis plugin compile` produced ([`Precompiled`]), by the digest that the configuration or the
//! lock file names.
#![allow(unsafe_code, reason = "the only way to load compiled code; its bytes are authenticated first")]

#[cfg(feature = "compiler")]
mod cache;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
#[cfg(feature = "compiler")]
use hmac::{Hmac, Mac as _};
use portcullis_core::digest::Digest;
use serde::{Deserialize, Serialize};
#[cfg(feature = "compiler")]
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

#[cfg(feature = "compiler")]
pub(crate) use cache::Cache;

/// The file name extension of compiled components.
pub(crate) const EXTENSION: &str = "cwasm";

/// The version of the format of [`Precompiled`].
const VERSION: u32 = 1;

/// Code compiled by this program, or by one that the configuration trusts.
struct Authentic<'a>(&'a [u8]);

impl<'a> Authentic<'a> {
    /// Returns the code if its tag was made by a holder of the key. `mac` has already been fed the code.
    #[cfg(feature = "compiler")]
    fn tagged(mac: Hmac<Sha256>, tag: &[u8], code: &'a [u8]) -> Option<Self> {
        mac.verify_slice(tag).is_ok().then_some(Self(code))
    }

    fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: this type is only constructed for code that was authenticated. Either by its tag, which proves that
        // it is the output of `Component::serialize` of an engine with the same compatibility hash in a process of this
        // user; or by its digest, written down by a person who trusts the origin of the file. An engine that cannot run
        // the code refuses it.
        unsafe { Component::deserialize(engine, self.0) }
    }
}

/// A component that was compiled elsewhere: one line of JSON, then the code.
#[derive(Debug)]
pub(crate) struct Precompiled {
    file: Vec<u8>,
    /// The digest of the file.
    digest: Digest,
    /// The offset at which the code begins.
    code: usize,
    header: Header,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// The format's [`VERSION`].
    portcullis: u32,
    /// The digest of the `.wasm` file.
    wasm: Digest,
    /// The `.wasm` file's documentation section, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    docs: Option<String>,
}

/// The reason why a file is not the expected precompiled component.
pub(crate) enum PrecompiledMismatch {
    /// The file has this digest and not the expected one.
    Changed(Digest),
    /// It was not made by `portcullis plugin compile`, or was made by another version of it.
    Foreign,
}

impl Precompiled {
    /// Reads a file that must have the digest `pinned`.
    pub(crate) fn open(file: Vec<u8>, pinned: Digest) -> Result<Self, PrecompiledMismatch> {
        let found = Digest::of(&file);
        if found != pinned {
            return Err(PrecompiledMismatch::Changed(found));
        }
        let end = memchr::memchr(b'\n', &file).ok_or(PrecompiledMismatch::Foreign)?;
        let header = file.get(..end).and_then(|line| serde_json::from_slice::<Header>(line).ok());
        let header = header.filter(|header| header.portcullis == VERSION).ok_or(PrecompiledMismatch::Foreign)?;
        Ok(Self { file, digest: found, code: end + 1, header })
    }

    /// Returns the contents of a file with the code compiled from this `.wasm` file and its documentation section.
    #[cfg(feature = "compiler")]
    pub(crate) fn file(wasm: Digest, docs: Option<&[u8]>, code: &[u8]) -> Vec<u8> {
        let header = Header { portcullis: VERSION, wasm, docs: docs.map(|docs| BASE64_STANDARD.encode(docs)) };
        let mut file = serde_json::to_vec(&header).unwrap_or_default();
        file.push(b'\n');
        file.extend_from_slice(code);
        file
    }

    /// Returns the digest of the file.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest of the `.wasm` file.
    pub(crate) fn wasm(&self) -> Digest {
        self.header.wasm
    }

    pub(crate) fn docs(&self) -> Option<Vec<u8>> {
        self.header.docs.as_ref().and_then(|docs| BASE64_STANDARD.decode(docs).ok())
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> usize {
        self.file.len()
    }

    /// Loads the code.
    ///
    /// # Errors
    /// The code was compiled for another engine, or is damaged.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // `open` compared the digest of the whole file; the field is private and never changed.
        Authentic(self.file.get(self.code..).unwrap_or_default()).load(engine)
    }
}
