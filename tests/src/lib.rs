//! What is tested across crates.

#[cfg(test)]
mod documents;
#[cfg(test)]
mod semver;
