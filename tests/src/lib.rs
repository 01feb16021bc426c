//! Tests that span crates.

pub mod fuzz;

#[cfg(test)]
mod documents;
#[cfg(test)]
mod house;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod semver;
