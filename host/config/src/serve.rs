//! Validates `[serve]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;

use portcullis_core::name::ProfileName;
use portcullis_core::secret::ConfigValue;

use super::build::ProblemCollector;
use super::error::UnlocatedProblem;
use super::raw::{Located, RawServe};
use super::{CallerConfig, JwtConfig, ProfileConfig, callers};

/// The default address of `portcullis serve`.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8765);

/// The HTTP front: `[serve]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ServeConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The bearer token that callers need, or `None` for the generated one in the data folder.
    pub token: Option<ConfigValue>,
    /// Host names that a request may carry in `Host`, in addition to loopback names and the listen address. Each with its
    /// port if that is not the one of `listen`.
    pub hosts: Vec<String>,
    /// Web origins from which requests are accepted.
    pub origins: Vec<String>,
    /// Callers that have their own token and profile, by name.
    pub callers: BTreeMap<String, CallerConfig>,
    /// The tokens of the people who may answer questions over HTTP, by name.
    pub people: BTreeMap<String, ConfigValue>,
    /// The issuer whose JWTs are also accepted as bearer tokens.
    pub jwt: Option<JwtConfig>,
    /// The bearer token that reads `/metrics` and does nothing else, or `None` to serve no metrics.
    pub metrics_token: Option<ConfigValue>,
    /// True if callers need no token.
    pub dangerous_no_token: bool,
}

/// Validates the settings of the HTTP front; every problem is added to `problems`.
pub(super) fn serve(
    raw: &RawServe,
    profiles: &BTreeMap<ProfileName, ProfileConfig>,
    problems: &mut ProblemCollector,
) -> ServeConfig {
    let listen = raw.listen.as_ref().and_then(|at| {
        problems.keep(at.parse::<SocketAddr>().map_err(|_| {
            UnlocatedProblem::new(at.span(), format!("{:?} is not an IP address and port", at.as_str()))
                .help("write numbers, like \"127.0.0.1:8765\" or \"[::1]:8765\"")
        }))
    });
    let token = raw.token.as_ref().and_then(|at| {
        problems.keep(callers::token(at, "leave `token` out, and the broker makes one in its data folder"))
    });
    let dangerous_no_token = raw.dangerous_no_token.as_ref().is_some_and(|at| **at);
    if let (true, Some(at)) = (dangerous_no_token, &raw.token) {
        problems.0.push(
            UnlocatedProblem::new(at.span(), "`token` and `dangerous-no-token` exclude each other")
                .help("remove one of them"),
        );
    }
    let hosts = raw.hosts.iter().filter_map(|at| {
        let problem = || {
            UnlocatedProblem::new(at.span(), format!("{:?} is not a host name", at.as_str()))
                .help("write the name without scheme or wildcard, like \"broker.example.com\"; with the port if it is not that of \
                       `listen`, like \"localhost:9000\"")
        };
        problems.keep(if is_name(at) { Ok(at.to_ascii_lowercase()) } else { Err(problem()) })
    });
    let hosts = hosts.collect();
    let origins = raw.origins.iter().filter_map(|at| problems.keep(origin(at))).collect();
    let (callers, jwt) = callers::callers(raw, profiles, problems);
    let people = callers::people(raw, problems);
    let metrics_token = raw
        .metrics_token
        .as_ref()
        .and_then(|at| problems.keep(callers::token(at, "name a secret: `metrics-token = { secret = \"metrics\" }`")));
    ServeConfig {
        listen: listen.unwrap_or(LISTEN),
        token,
        hosts,
        origins,
        callers,
        people,
        jwt,
        metrics_token,
        dangerous_no_token,
    }
}

/// Reports whether a text is a host name, or one with a port.
fn is_name(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<NonZeroU16>().is_ok_and(|number| number.to_string() == port);
    let name = text.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(text, |(name, _)| name);
    portcullis_net::egress::is_host(name)
}

/// Validates a web origin, in the form in which browsers send it.
fn origin(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let parsed = url::Url::parse(at).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let origin = parsed.map(|url| url.origin().ascii_serialization());
    origin.filter(|origin| origin.eq_ignore_ascii_case(at)).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} is not a web origin", at.as_str()))
            .help("write scheme and host as browsers send them, like \"https://app.example.com\"")
    })
}
