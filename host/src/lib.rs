//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! The modules stand in the order in which a call takes them.

pub mod broker;
pub mod call;
pub mod catalog;
pub mod config;
pub mod digest;
mod egress;
pub mod gate;
pub mod message;
pub mod name;
pub mod session;
pub mod source;
