//! Tests that span crates.

pub mod fuzz;

/// The page of the book on embedding, whose Rust is compiled as examples of this item.
#[cfg(doctest)]
#[doc = include_str!("../../docs/src/extend/embedding.md")]
pub struct EmbeddingPage;

#[cfg(test)]
mod book;
#[cfg(test)]
mod comments;
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
