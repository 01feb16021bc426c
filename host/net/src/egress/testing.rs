//! Shared test helpers: a resolver whose answers the test chooses.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::NameResolver;

/// A resolver that gives each name's answers in turn and then repeats the last one.
pub(super) struct FixedLookup {
    answers: HashMap<&'static str, Vec<Vec<IpAddr>>>,
    pub(super) asked: AtomicUsize,
}

impl FixedLookup {
    /// Creates a resolver from names, each with the answers of its lookups.
    pub(super) fn of<'a>(all: impl IntoIterator<Item = (&'static str, Vec<Vec<&'a str>>)>) -> Arc<Self> {
        let parsed = |answer: Vec<&str>| answer.into_iter().map(|ip| ip.parse().unwrap()).collect();
        let answers = all.into_iter().map(|(name, answers)| (name, answers.into_iter().map(parsed).collect()));
        Arc::new(Self { answers: answers.collect(), asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl NameResolver for FixedLookup {
    async fn lookup(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.get(name).filter(|answers| !answers.is_empty());
        let answers = answers.ok_or_else(|| io::Error::other("no such name"))?;
        Ok(answers[turn.min(answers.len() - 1)].iter().map(|ip| SocketAddr::new(*ip, port)).collect())
    }
}
