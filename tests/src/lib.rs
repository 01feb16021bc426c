//! Tests that span crates.

pub mod fuzz;

#[cfg(test)]
mod book;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod links;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod semver;
