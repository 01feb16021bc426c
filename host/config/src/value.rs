//! Single values: sizes, durations, paths, globs, hosts. Each is validated here, once.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use portcullis_net::egress::is_host;

use super::error::{UnlocatedProblem, suggest};
use super::raw::{Located, RawNames, RawValue};
use super::{ConfigValue, Naming};

/// The longest label of a source's results, in bytes: a person reads it in a question.
const MAX_LABEL_BYTES: usize = 64;

/// The longest key of `_meta` that `context` may name, in bytes: longer ones are not in use.
const MAX_META_BYTES: usize = 128;

/// The longest glob, in bytes: tool names have at most 64 characters.
const MAX_GLOB_BYTES: usize = 256;

/// The longest prefix, in bytes: a tool name of 64 characters must have space left for the tool.
const MAX_PREFIX_BYTES: usize = portcullis_core::name::MAX_NAME_BYTES;

/// Parses a size, which is a number and a unit: `512MiB`.
pub(super) fn size(at: &Located<String>) -> Result<u64, UnlocatedProblem> {
    let refuse =
        |why: &str, help: String| UnlocatedProblem::new(at.span(), format!("size {:?} {why}", at.as_str())).help(help);
    let (number, unit) = split_number(at);
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "K" | "KB" | "kB" | "M" | "MB" | "G" | "GB" | "k" | "m" | "g" | "kb" | "mb" | "gb" if !number.is_empty() => {
            let letter = unit.get(..1).unwrap_or_default().to_uppercase();
            return Err(refuse("has an ambiguous unit", format!("write {:?}", format!("{number}{letter}iB"))));
        }
        _ => {
            return Err(refuse(
                "is not a whole number with a unit",
                "write it like \"512MiB\": B, KiB, MiB or GiB".into(),
            ));
        }
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| refuse("is out of range", "write it like \"512MiB\"".into()))
}

/// Parses a duration, which is a number and a unit: `10m`.
pub(super) fn duration(at: &Located<String>) -> Result<Duration, UnlocatedProblem> {
    let refuse = |why: &str| {
        UnlocatedProblem::new(at.span(), format!("duration {:?} {why}", at.as_str()))
            .help("write it like \"30s\" or \"10m\": ms, s, m, h, d or y")
    };
    let (number, unit) = split_number(at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "y" => 365 * 86_400_000,
        _ => return Err(refuse("is not a whole number with a unit")),
    };
    let millis = number.parse::<u64>().ok().and_then(|n| n.checked_mul(millis));
    millis.filter(|millis| *millis > 0).map(Duration::from_millis).ok_or_else(|| refuse("is out of range"))
}

/// Parses a duration and checks that it is within limits.
pub(super) fn duration_within(
    at: &Located<String>,
    least: Duration,
    most: Duration,
) -> Result<Duration, UnlocatedProblem> {
    let duration = duration(at)?;
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    Err(UnlocatedProblem::new(at.span(), format!("duration {:?} is out of range", at.as_str())).help(format!(
        "from {} to {} seconds are possible here",
        least.as_secs(),
        most.as_secs()
    )))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Makes a path absolute and removes `.` and `..`. Whether it exists is checked by `portcullis check`.
pub(super) fn path(at: &Located<String>, base: &Path) -> Result<PathBuf, UnlocatedProblem> {
    let text = at.as_str();
    let refuse = |why: &str, help: &str| UnlocatedProblem::new(at.span(), format!("path {text:?} {why}")).help(help);
    if text.is_empty() {
        return Err(refuse("is empty", "write `.` for the folder of this file"));
    }
    if text.contains(char::is_control) {
        return Err(refuse("has a control character in it", "remove it"));
    }
    if text.starts_with('~') || text.starts_with('$') || text.starts_with("file:") {
        return Err(refuse(
            "is not a plain path",
            "nothing is expanded here: write the path itself, from `/` on or relative to this file",
        ));
    }
    Ok(normal(&base.join(text)))
}

/// Resolves `.` and `..` only by name: the path means what is written, whatever links are on the disk.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Validates a list of globs.
pub(super) fn globs(list: &[Located<String>]) -> Result<Vec<String>, UnlocatedProblem> {
    list.iter().map(|at| glob(at).map(|_| at.to_string())).collect()
}

/// Compiles one glob.
pub(super) fn glob(at: &Located<String>) -> Result<globset::GlobMatcher, UnlocatedProblem> {
    let refuse = |why: &dyn std::fmt::Display| {
        UnlocatedProblem::new(at.span(), format!("glob {:?} is not valid: {why}", at.as_str()))
            .help("`*` stands for any characters, `?` for one, `[ab]` and `{one,two}` for a choice")
    };
    if at.is_empty() {
        return Err(refuse(&"it is empty"));
    }
    if at.len() > MAX_GLOB_BYTES {
        return Err(refuse(&format_args!("it is longer than {MAX_GLOB_BYTES} bytes")));
    }
    globset::Glob::new(at).map(|glob| glob.compile_matcher()).map_err(|error| refuse(&error.kind()))
}

/// Parses how a source's tools are named.
pub(super) fn names(at: &Located<RawNames>) -> Result<Naming, UnlocatedProblem> {
    match &**at {
        RawNames::Style(style) => {
            match style.as_str() {
                "source" => Ok(Naming::Source),
                "mcp" => Ok(Naming::Mcp),
                "plain" => Ok(Naming::Plain),
                _ => Err(UnlocatedProblem::new(at.span(), format!("unknown value {style:?} for `names`"))
                    .help(suggest(style, &["source", "mcp", "plain"], "beside `{ prefix = \"…\" }` there are"))),
            }
        }
        RawNames::Prefix(raw) => {
            let prefix = &raw.prefix;
            let good = (1..=MAX_PREFIX_BYTES).contains(&prefix.len())
                && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
                && !prefix.contains(portcullis_core::name::SEPARATOR);
            let help = format!(
                "up to {MAX_PREFIX_BYTES} ASCII letters, digits, `-` and `_`, without `__`: that separates source and tool"
            );
            good.then(|| Naming::Prefix(prefix.clone()))
                .ok_or_else(|| UnlocatedProblem::new(at.span(), format!("prefix {prefix:?} is not valid")).help(help))
        }
    }
}

/// Validates a tag, a label that policies can read.
pub(super) fn tag(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let good = (1..=64).contains(&at.len()) && !at.contains(portcullis_core::escape::is_hidden);
    good.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("tag {:?} is not valid", at.as_str()))
            .help("1 to 64 visible characters")
    })
}

/// Validates a label of a source's results.
pub(super) fn label(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let good = (1..=MAX_LABEL_BYTES).contains(&at.len()) && at.bytes().all(plain);
    good.then(|| at.to_string()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("label {:?} is not valid", at.as_str()))
            .help("1 to 64 lower-case letters, digits and dashes, such as \"untrusted\" or \"private\"")
    })
}

/// Validates a host to which links may lead, or all names below a domain, and returns it in lower case.
pub(super) fn link_host(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let name = at.strip_prefix("*.").unwrap_or(at);
    let is_name = is_host(name) && !name.starts_with('[');
    is_name.then(|| at.to_ascii_lowercase()).ok_or_else(|| {
        UnlocatedProblem::new(at.span(), format!("{:?} in `link-hosts` is not a host", at.as_str()))
            .help("write a name without scheme, port and path, such as \"docs.example.com\" or \"*.example.com\"")
    })
}

/// Validates a key of `_meta` that is passed to the source, or the name of a part of `deps`.
pub(super) fn meta_key(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let refuse = |why: &str, help: &str| {
        Err(UnlocatedProblem::new(at.span(), format!("context {:?} {why}", at.as_str())).help(help))
    };
    if !(1..=MAX_META_BYTES).contains(&at.len()) || !at.bytes().all(|b| b.is_ascii_graphic()) {
        return refuse("is not a key of `_meta`", "write 1 to 128 visible ASCII characters, without a wildcard");
    }
    if at.contains('*') {
        return refuse("has a wildcard", "name each key: a wildcard also passes keys that nobody thought of");
    }
    match at.as_str() {
        "deps" => refuse("is not passed whole", "name the parts: \"user_context\", \"request_id\""),
        key if key == "progressToken" || key.starts_with(portcullis_core::protocol::meta::RESERVED) => {
            refuse("belongs to the protocol, which passes what it needs", "leave it out")
        }
        key => Ok(key.to_owned()),
    }
}

/// Validates a literal value, or the name of a secret.
pub(super) fn value(at: &Located<RawValue>) -> Result<ConfigValue, UnlocatedProblem> {
    match &**at {
        RawValue::Plain(text) if text.contains('\0') => {
            Err(UnlocatedProblem::new(at.span(), "the value has a NUL character in it")
                .help("remove it: no program could receive it"))
        }
        RawValue::Plain(text) => Ok(ConfigValue::Plain(text.clone())),
        RawValue::Secret(raw) => match portcullis_core::secret::check_name(&raw.secret) {
            Ok(()) => Ok(ConfigValue::Secret(raw.secret.clone())),
            Err(error) => Err(UnlocatedProblem::new(at.span(), error.to_string())
                .help("name it as `portcullis secret set NAME` does")),
        },
    }
}

/// Parses `host:port` and returns it in lower case.
pub(super) fn network(at: &Located<String>) -> Result<String, UnlocatedProblem> {
    let text = at.as_str();
    let refuse =
        |why: &str, help: String| UnlocatedProblem::new(at.span(), format!("network entry {text:?} {why}")).help(help);
    let example = "write it like \"api.example.com:443\"";
    if let Some((scheme, rest)) = text.split_once("://") {
        let host = rest.split('/').next().unwrap_or_default();
        let port = if host.contains(':') {
            ""
        } else if scheme == "http" {
            ":80"
        } else {
            ":443"
        };
        return Err(refuse("has a scheme", format!("write \"{host}{port}\"")));
    }
    if text.contains('*') {
        return Err(refuse(
            "has a wildcard",
            "name each host: a wildcard lets the source send data out in a host name".into(),
        ));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.ends_with(':')) else {
        return Err(refuse("has no port", format!("write \"{text}:443\"")));
    };
    if !port.parse::<u16>().is_ok_and(|p| p > 0 && port.bytes().all(|b| b.is_ascii_digit())) {
        return Err(refuse("has no valid port", example.into()));
    }
    match is_host(host) {
        true => Ok(format!("{}:{port}", host.to_ascii_lowercase())),
        false => Err(refuse("has no valid host", format!("{example}, names beyond ASCII in their `xn--` form"))),
    }
}

/// Makes a valid source name from any text. Returns `fallback`, which must be valid, if nothing usable remains.
pub(super) fn sanitised_name(text: &str, fallback: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let doubled = matches!(c, '-' | '_') && name.ends_with(['-', '_']);
        if !doubled
            && name.len() < portcullis_core::name::MAX_NAME_BYTES
            && !(name.is_empty() && matches!(c, '-' | '_'))
        {
            name.push(c);
        }
    }
    let name = name.trim_end_matches(['-', '_']);
    if name.is_empty() { fallback.to_owned() } else { name.to_owned() }
}
