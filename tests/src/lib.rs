//! What is tested across crates.

#[cfg(test)]
mod semver;
#[cfg(test)]
mod documents;
