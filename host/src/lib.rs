//! Portcullis is a deny-by-default broker for the Model Context Protocol.
//!
//! An agent connects to one endpoint; behind it stand many tool sources that nobody has reason to trust. The modules stand
//! in the order in which a call takes them.

pub mod config;
pub mod secret;

pub mod broker;
pub mod control;
pub mod front;
pub mod session;

pub mod call;
pub mod catalog;
pub mod digest;
pub mod message;
pub mod name;

pub mod gate;
pub mod ledger;
pub mod plugin;
mod seal;

pub mod egress;
pub mod source;

pub mod visible;
