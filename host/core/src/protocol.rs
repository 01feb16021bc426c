//! The Model Context Protocol as specified: messages and their JSON, revisions and eras, methods, `_meta` keys, error
//! codes and HTTP headers.
//!
//! Every name that the specification defines is written here and nowhere else, so that a new revision is an edit of one
//! folder. The meaning of a message to the broker is decided elsewhere.

mod asking;
mod buffer;
mod canonical;
mod error;
pub mod header;
mod json;
mod message;
pub mod meta;
mod method;
pub mod param_header;
pub mod revision;

pub use asking::{AskingMembers, fold};
pub use buffer::MessageBuffer;
pub use canonical::{CanonicalError, canonical, canonical_value, check_canonical, compare_keys};
pub use canonical::{write_canonical_text, write_canonical_value};
pub use error::RpcError;
pub use json::{Json, LongString, MemberTexts, string_end};
pub use message::reserve_for_message;
pub use message::{
    Answer, Id, MAX_ENVELOPE_BYTES, MAX_ID_BYTES, MAX_MESSAGE_BYTES, MAX_NESTING, Message, MessageError, Notification,
    Request, Response,
};
pub use method::{Method, UnknownMethod};
pub use revision::Era;
