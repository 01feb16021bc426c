//! Compiled code. The one module with `unsafe`: loading compiled code executes it, so its bytes are authenticated first, and the
//! bytes that were checked are the bytes that are loaded; no file is opened again.
//!
//! Two things are known to be ours: what this broker compiled and kept ([`Cache`]), by a tag under a key of its own; and what
//! `portcullis plugin compile` made ([`Precompiled`]), by the digest that the configuration or the lock names.
#![allow(unsafe_code, reason = "the only way to load compiled code; its bytes are authenticated first")]

#[cfg(feature = "compiler")]
mod cache;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
#[cfg(feature = "compiler")]
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
#[cfg(feature = "compiler")]
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

#[cfg(feature = "compiler")]
pub(crate) use cache::Cache;

use crate::digest::Digest;

/// What file names of compiled components end in.
pub(crate) const EXTENSION: &str = "cwasm";

/// The format of [`Precompiled`].
const VERSION: u32 = 1;

/// Code that this program, or one that the configuration trusts, has compiled.
struct Authentic<'a>(&'a [u8]);

impl<'a> Authentic<'a> {
    /// Code with a tag that only a holder of the key can make. `mac` has taken the code.
    #[cfg(feature = "compiler")]
    fn tagged(mac: Hmac<Sha256>, tag: &[u8], code: &'a [u8]) -> Option<Self> {
        mac.verify_slice(tag).is_ok().then_some(Self(code))
    }

    fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: there is one of these for code alone that was authenticated: by its tag, which proves that it is the output of
        // `Component::serialize` of an engine with the same compatibility hash in a process of this user; or by its digest, which
        // a person wrote down who trusts what made it. An engine that could not run it refuses it.
        unsafe { Component::deserialize(engine, self.0) }
    }
}

/// A component that was compiled elsewhere: a line of JSON, then the code.
#[derive(Debug)]
pub(crate) struct Precompiled {
    file: Vec<u8>,
    /// Of the file.
    digest: Digest,
    /// Where the code begins.
    code: usize,
    header: Header,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// [`VERSION`]
    portcullis: u32,
    /// Of the `.wasm`.
    wasm: Digest,
    /// Its section of documentation, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    docs: Option<String>,
}

/// Why a file is no precompiled component.
pub(crate) enum Unfit {
    /// It has another digest: this one.
    Changed(Digest),
    /// It was not made by `portcullis plugin compile`, or by another version.
    Foreign,
}

impl Precompiled {
    /// The file that has this digest.
    pub(crate) fn open(file: Vec<u8>, pinned: Digest) -> Result<Self, Unfit> {
        let found = Digest::of(&file);
        if found != pinned {
            return Err(Unfit::Changed(found));
        }
        let end = memchr::memchr(b'\n', &file).ok_or(Unfit::Foreign)?;
        let header = file.get(..end).and_then(|line| serde_json::from_slice::<Header>(line).ok());
        let header = header.filter(|header| header.portcullis == VERSION).ok_or(Unfit::Foreign)?;
        Ok(Self { file, digest: found, code: end + 1, header })
    }

    /// The file for what was compiled from this `.wasm`, with its section of documentation.
    #[cfg(feature = "compiler")]
    pub(crate) fn file(wasm: Digest, docs: Option<&[u8]>, code: &[u8]) -> Vec<u8> {
        let header = Header { portcullis: VERSION, wasm, docs: docs.map(|docs| BASE64_STANDARD.encode(docs)) };
        let mut file = serde_json::to_vec(&header).unwrap_or_default();
        file.push(b'\n');
        file.extend_from_slice(code);
        file
    }

    /// Of the file.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Of the `.wasm`.
    pub(crate) fn wasm(&self) -> Digest {
        self.header.wasm
    }

    pub(crate) fn docs(&self) -> Option<Vec<u8>> {
        self.header.docs.as_ref().and_then(|docs| BASE64_STANDARD.decode(docs).ok())
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> usize {
        self.file.len()
    }

    /// # Errors
    /// If it was compiled for another engine, or is damaged.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // `open` compared the digest of the whole file, which is private and never changed.
        Authentic(self.file.get(self.code..).unwrap_or_default()).load(engine)
    }
}
