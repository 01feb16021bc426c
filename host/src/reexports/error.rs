//! Errors of single functions, and those that are the causes in other errors, such as [`BuildError`](crate::BuildError),
//! for programs that store them or match them.

/// An error that says why the lock file of accepted definitions cannot be used.
///
/// # Example
/// ```
/// use portcullis::{BuildError, error::LockError};
/// fn lock_file(error: &BuildError) -> Option<&std::path::Path> {
///     match error {
///         BuildError::Lock(LockError::Io { path, .. } | LockError::Malformed { path, .. }) => Some(path),
///         _ => None,
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::lockfile::LockError;

/// An error that says why a file or folder is not private to this user.
///
/// # Example
/// ```
/// use portcullis::{BuildError, error::NotPrivate};
/// fn must_be_closed(error: &BuildError) -> bool {
///     matches!(error, BuildError::Private(NotPrivate::Open { .. }))
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::private::NotPrivate;

/// An error that says why a secret cannot be stored or returned. It contains no value.
///
/// # Example
/// ```
/// use portcullis::{BuildError, error::SecretError};
/// fn unset(error: &BuildError) -> Option<&str> {
///     match error {
///         BuildError::Secret { error: SecretError::Unset(name), .. } => Some(name),
///         _ => None,
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::secret::SecretError;

/// An error that says why a list of `allow` or `deny` cannot be used.
///
/// # Example
/// ```
/// use portcullis::{BuildError, error::FilterError};
/// fn glob(error: &BuildError) -> Option<&str> {
///     match error {
///         BuildError::Filter(FilterError { glob, .. }) => Some(glob),
///         _ => None,
///     }
/// }
/// ```
#[doc(inline)]
pub use crate::catalog::FilterError;

/// The cause of a failure at a source.
///
/// # Example
/// ```
/// use portcullis::{SourceError, error::Cause};
/// fn cause(error: &SourceError) -> Option<&Cause> {
///     match error {
///         SourceError::Start(cause) | SourceError::Closed(cause) | SourceError::Protocol(cause) => Some(cause),
///         _ => None,
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::call::Cause;

/// An error that says why text is not a JSON value.
///
/// # Example
/// ```
/// use portcullis::{Json, error::MessageError};
/// assert!(matches!(Json::parse("{"), Err(MessageError::Json(_))));
/// assert_eq!(Json::parse("[".repeat(1000)), Err(MessageError::TooDeep));
/// ```
#[doc(inline)]
pub use portcullis_core::protocol::MessageError;

/// An error that says why a request over the network was not sent, or got no response.
///
/// # Example
/// ```
/// use portcullis::error::{EgressError, FrontError};
/// fn may_pass(error: &FrontError) -> bool {
///     matches!(error, FrontError::Keys(EgressError::Dns { .. } | EgressError::Connect { .. }))
/// }
/// ```
#[cfg(feature = "http-front")]
#[doc(inline)]
pub use portcullis_net::egress::EgressError;

/// An error that says why the tokens of callers cannot be read or made.
///
/// # Example
/// ```
/// use portcullis::error::{FrontError, TokenError};
/// fn shared(error: &FrontError) -> Option<&str> {
///     match error {
///         FrontError::Token(TokenError::Shared(caller)) => Some(caller),
///         _ => None,
///     }
/// }
/// ```
#[cfg(feature = "http-front")]
#[doc(inline)]
pub use crate::front::http::TokenError;

/// An error that says why a plugin cannot be loaded.
///
/// # Example
/// ```
/// use portcullis::{BuildError, error::PluginError};
/// fn has_changed(error: &BuildError) -> bool {
///     match error {
///         BuildError::Plugin(error) => matches!(error, PluginError::Changed { .. }),
///         BuildError::PluginAt { error, .. } => matches!(**error, PluginError::Changed { .. }),
///         _ => false,
///     }
/// }
/// ```
#[doc(inline)]
pub use portcullis_wasm::PluginError;

/// An error that says why text is not a name of a source or a profile.
///
/// # Example
/// ```
/// use portcullis::{SourceName, error::NameError};
/// assert_eq!("a__b".parse::<SourceName>(), Err(NameError::Separator("a__b".to_owned())));
/// ```
#[doc(inline)]
pub use portcullis_core::name::NameError;

/// An error that says why text is no principal.
///
/// # Example
/// ```
/// use portcullis::{Principal, error::PrincipalError};
/// // It would pass for a caller of the HTTP front.
/// assert!(matches!("token:ada".parse::<Principal>(), Err(PrincipalError::Reserved(_))));
/// ```
#[doc(inline)]
pub use portcullis_core::principal::PrincipalError;

/// An error that says why something could not be recorded or read.
///
/// # Example
/// ```
/// # fn show(error: portcullis::error::LedgerError) {
/// match error {
///     portcullis::error::LedgerError::Full(folder) => eprintln!("no room in {}", folder.display()),
///     error => eprintln!("{error}"),
/// }
/// # }
/// ```
#[doc(inline)]
pub use portcullis_ledger::LedgerError;

pub use crate::broker::{ConnectAllError, ReloadError};
#[cfg(feature = "http-front")]
pub use crate::front::http::FrontError;
pub use crate::gate::InboxError;
