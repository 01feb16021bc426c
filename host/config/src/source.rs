//! Validates one source.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use portcullis_core::name::SourceName;
use portcullis_core::protocol::{Era, header};

use super::build::{ProblemCollector, grant_list, json_settings};
use super::cell::{self, BrokerFiles};
use super::error::{UnlocatedProblem, suggest};
use super::raw::{Located, RawCommand, RawDiscovery, RawEra, RawLifecycle, RawSource, RawStart, RawValue};
use super::{
    ConfigValue, ConnectionReuse, Endpoint, HttpTransportKind, ScanMode, SourceConfig, ToolListUpdates, plugin, quota,
    value, variable,
};

/// The default timeout of a call, which is what MCP's own SDKs wait, and the limits of the setting.
pub const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_LEAST: Duration = Duration::from_secs(1);
pub(crate) const TIMEOUT_MOST: Duration = Duration::from_secs(60 * 60);

/// The default and the largest time for which an unused connection is kept. The default is longer than a user pauses to
/// think, and shorter than a lunch break.
const IDLE: Duration = Duration::from_secs(10 * 60);
const IDLE_MOST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Headers that the transport sets itself.
pub const OWN_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    header::LAST_EVENT_ID,
    header::METHOD,
    header::NAME,
    header::PROTOCOL_VERSION,
    header::SESSION_ID,
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Validates a source and returns it if its name and endpoint are valid; every problem is added to `problems`.
pub(super) fn build(
    at: &Located<String>,
    name: Option<&SourceName>,
    raw: &RawSource,
    base: &Path,
    own: &BrokerFiles<'_>,
    problems: &mut ProblemCollector,
) -> Option<SourceConfig> {
    let endpoint = endpoint(at, raw, base, problems);
    let mut cell = raw.cell.as_ref().map(|raw| cell::cell(raw, base, own, problems)).unwrap_or_default();
    cell.dangerous_allow_private = raw.dangerous_allow_private.as_ref().is_some_and(|at| **at);
    let timeout =
        raw.timeout.as_ref().and_then(|at| problems.keep(value::duration_within(at, TIMEOUT_LEAST, TIMEOUT_MOST)));
    let idle = raw.idle.as_ref().and_then(|at| problems.keep(value::duration_within(at, TIMEOUT_LEAST, IDLE_MOST)));
    Some(SourceConfig {
        names: raw.names.as_ref().and_then(|at| problems.keep(value::names(at))).unwrap_or_default(),
        group: None,
        priority: quota::priority(raw, problems),
        tags: raw.tags.iter().filter_map(|at| problems.keep(value::tag(at))).collect(),
        labels: raw.labels.as_ref().map(|list| list.iter().filter_map(|at| problems.keep(value::label(at))).collect()),
        link_hosts: raw.link_hosts.iter().filter_map(|at| problems.keep(value::link_host(at))).collect(),
        enabled: raw.enabled.unwrap_or(true),
        required: raw.required.unwrap_or(false),
        eager: raw.start == Some(RawStart::Eager),
        era: raw.era.map(|era| match era {
            RawEra::Legacy => Era::Legacy,
            RawEra::Modern => Era::Modern,
        }),
        trust_annotations: raw.trust_annotations.unwrap_or(false),
        context: raw.context.iter().filter_map(|at| problems.keep(value::meta_key(at))).collect(),
        allow: raw.allow.as_ref().and_then(|list| problems.keep(value::globs(list))),
        deny: problems.keep(value::globs(&raw.deny)).unwrap_or_default(),
        cell,
        timeout: timeout.unwrap_or(TIMEOUT),
        concurrency: quota::concurrency(raw, problems),
        max_connections: quota::max_connections(raw, problems),
        discovery: match raw.discovery {
            Some(RawDiscovery::Live) => ToolListUpdates::Live,
            Some(RawDiscovery::Snapshot) | None => ToolListUpdates::Snapshot,
        },
        scan: raw.scan.map_or_else(ScanMode::default, ScanMode::from),
        lifecycle: match raw.lifecycle {
            Some(RawLifecycle::PerCall) => ConnectionReuse::PerCall,
            Some(RawLifecycle::Warm) | None => ConnectionReuse::Warm,
        },
        idle: idle.unwrap_or(IDLE),
        max_message: portcullis_core::protocol::MAX_MESSAGE_BYTES,
        name: name?.clone(),
        endpoint: endpoint?,
    })
}

fn endpoint(at: &Located<String>, raw: &RawSource, base: &Path, problems: &mut ProblemCollector) -> Option<Endpoint> {
    let kind = kind(at, raw, problems)?;
    let misplaced = misplaced_keys(raw, kind);
    problems.0.extend(misplaced);
    problems.0.extend(raw.cell.as_ref().into_iter().flat_map(|raw| cell::inapplicable_keys(raw, kind)));
    match (&raw.command, &raw.url, &raw.component, &raw.native) {
        (Some(command), ..) => {
            let argv = problems.keep(argv(command, base));
            let cwd = raw.cwd.as_ref().and_then(|at| problems.keep(value::path(at, base)));
            let env = raw.env.as_ref().map(|env| variables(env, problems)).unwrap_or_default();
            Some(Endpoint::Command { argv: argv?, cwd, env })
        }
        (_, Some(at), ..) => {
            let headers = raw.headers.as_ref().map(|headers| self::headers(headers, problems)).unwrap_or_default();
            let dangerous_allow_private = raw.dangerous_allow_private.as_ref().is_some_and(|at| **at);
            let transport_kind =
                raw.transport.as_ref().and_then(|at| problems.keep(transport_kind(at))).unwrap_or_default();
            let has_header = headers.contains_key("authorization");
            let oauth = raw.oauth.as_ref().map(|at| super::oauth::oauth(at, has_header, problems)).unwrap_or_default();
            Some(Endpoint::Url {
                url: problems.keep(url(at))?,
                headers,
                oauth,
                dangerous_allow_private,
                transport_kind,
            })
        }
        (_, _, Some(at), _) => {
            let settings = problems.keep(json_settings(raw.settings.as_ref()));
            let grant = raw.grant.as_ref().map(|list| grant_list(list, problems)).unwrap_or_default();
            let env = raw.env.as_ref().map(|env| variables(env, problems)).unwrap_or_default();
            let args = problems.keep(raw.args.as_deref().map_or(Ok(Vec::new()), |words| arguments(words)));
            let component = problems.keep(plugin::parse(at, base))?;
            Some(Endpoint::Component { component, settings: settings?, grant, env, args: args? })
        }
        (_, _, _, Some(at)) => Some(Endpoint::Native { name: at.as_str().to_owned() }),
        (None, None, None, None) => None,
    }
}

/// Returns the key that determines the kind of the source.
fn kind(at: &Located<String>, raw: &RawSource, problems: &mut ProblemCollector) -> Option<&'static str> {
    let given = [
        ("command", raw.command.is_some()),
        ("url", raw.url.is_some()),
        ("component", raw.component.is_some()),
        ("native", raw.native.is_some()),
    ];
    let given: Vec<&str> = given.into_iter().filter_map(|(key, is)| is.then_some(key)).collect();
    let (message, help) = match given.as_slice() {
        [kind] => return Some(kind),
        [] => (
            "has none of `command`, `url` and `component`".to_owned(),
            "say what the source is, such as `command = [\"program\", \"argument\"]`",
        ),
        many => {
            let many: Vec<String> = many.iter().map(|key| format!("`{key}`")).collect();
            (format!("has {}, which exclude each other", many.join(" and ")), "make a source of each, or keep one")
        }
    };
    problems.0.push(UnlocatedProblem::new(at.span(), format!("source {:?} {message}", at.as_str())).help(help));
    None
}

/// Returns a problem for each key that belongs to sources of another kind.
fn misplaced_keys(raw: &RawSource, kind: &str) -> Vec<UnlocatedProblem> {
    let confined_kind = if matches!(kind, "url" | "native") { "command" } else { kind };
    let keys = [
        ("env", confined_kind, raw.env.as_ref().map(Located::span)),
        ("args", "component", raw.args.as_ref().map(Located::span)),
        ("cwd", "command", raw.cwd.as_ref().map(Located::span)),
        ("cell", confined_kind, raw.cell.as_ref().map(Located::span)),
        ("headers", "url", raw.headers.as_ref().map(Located::span)),
        ("oauth", "url", raw.oauth.as_ref().map(Located::span)),
        ("transport", "url", raw.transport.as_ref().map(Located::span)),
        ("settings", "component", raw.settings.as_ref().map(Located::span)),
        ("grant", "component", raw.grant.as_ref().map(Located::span)),
    ];
    let misplaced = keys.into_iter().filter(|(_, belongs, _)| *belongs != kind);
    let problem = |(key, belongs, span): (&str, &str, Option<_>)| {
        let message = format!("`{key}` belongs to a source with `{belongs}`, and this one has `{kind}`");
        let help = match (key, kind) {
            ("args", "command") => "write the arguments behind the program in `command`".to_owned(),
            _ => format!("remove `{key}`"),
        };
        Some(UnlocatedProblem::new(span?, message).help(help))
    };
    misplaced.filter_map(problem).collect()
}

/// Returns program and arguments. A program with a slash in its name is relative to the file; any other is looked up in
/// `PATH`.
fn argv(at: &Located<RawCommand>, base: &Path) -> Result<Vec<String>, UnlocatedProblem> {
    let as_array = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(|word| format!("{word:?}")).collect();
        format!("write it as an array: command = [{}]", words.join(", "))
    };
    let words = match &**at {
        RawCommand::Argv(words) => words,
        RawCommand::Line(line) => {
            return Err(UnlocatedProblem::new(at.span(), "`command` is one string, and no shell splits it")
                .help(as_array(line)));
        }
    };
    let Some(program) = words.first().filter(|program| !program.trim().is_empty()) else {
        return Err(UnlocatedProblem::new(at.span(), "`command` names no program")
            .help("write `command = [\"program\", \"argument\"]`"));
    };
    if words.len() == 1 && !program.contains('/') && program.contains(char::is_whitespace) {
        return Err(UnlocatedProblem::new(program.span(), format!("no program is called {:?}", program.as_str()))
            .help(as_array(program)));
    }
    let mut argv = arguments(words)?;
    if let Some(first) = argv.first_mut().filter(|first| first.contains('/')) {
        *first = value::path(program, base)?.to_string_lossy().into_owned();
    }
    Ok(argv)
}

/// Returns the words of a command line.
fn arguments(words: &[Located<String>]) -> Result<Vec<String>, UnlocatedProblem> {
    match words.iter().find(|word| word.contains('\0')) {
        Some(word) => Err(UnlocatedProblem::new(word.span(), "this argument has a NUL character in it")
            .help("remove it: no program could receive it")),
        None => Ok(words.iter().map(|word| word.to_string()).collect()),
    }
}

fn variables(
    env: &BTreeMap<Located<String>, Located<RawValue>>,
    problems: &mut ProblemCollector,
) -> BTreeMap<String, ConfigValue> {
    let mut variables = BTreeMap::new();
    for (name, at) in env {
        let good = problems.keep(variable::check(name));
        let value = problems.keep(value::value(at));
        variables.extend(good.and(value).map(|value| (name.to_string(), value)));
    }
    variables
}

pub(super) fn headers(
    raw: &BTreeMap<Located<String>, Located<RawValue>>,
    problems: &mut ProblemCollector,
) -> BTreeMap<String, ConfigValue> {
    let mut headers = BTreeMap::new();
    for (name, at) in raw {
        let value = problems.keep(header(name, at));
        let lower = name.to_ascii_lowercase();
        if headers.contains_key(&lower) {
            problems.0.push(
                UnlocatedProblem::new(name.span(), format!("header {:?} is given twice", name.as_str()))
                    .help("keep one"),
            );
        }
        headers.extend(value.map(|value| (lower, value)));
    }
    headers
}

fn header(name: &Located<String>, at: &Located<RawValue>) -> Result<ConfigValue, UnlocatedProblem> {
    let value = value::value(at)?;
    let plain = match &value {
        ConfigValue::Plain(text) => text,
        ConfigValue::Secret(_) => "",
    };
    match header_problem(name, plain) {
        None => Ok(value),
        Some((why, help)) => {
            Err(UnlocatedProblem::new(name.span(), format!("header {:?} {why}", name.as_str())).help(help))
        }
    }
}

/// Returns why a header cannot be sent, and the way out.
pub(super) fn header_problem(name: &str, value: &str) -> Option<(&'static str, &'static str)> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Some(("has a name that is not valid", "write it like \"Authorization\""));
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Some(("is set by the broker", "leave it out"));
    }
    if !value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)) {
        return Some((
            "has a value with other characters than visible ASCII",
            "take line breaks and other control characters out",
        ));
    }
    None
}

fn transport_kind(at: &Located<String>) -> Result<HttpTransportKind, UnlocatedProblem> {
    match at.as_str() {
        "http" => Ok(HttpTransportKind::Http),
        "sse" => Ok(HttpTransportKind::Sse),
        other => Err(UnlocatedProblem::new(at.span(), format!("unknown value {other:?} for `transport`"))
            .help(suggest(other, &["http", "sse"], "leave it out to find out, or write one of"))),
    }
}

fn url(at: &Located<String>) -> Result<url::Url, UnlocatedProblem> {
    // The message does not repeat the URL, which may contain a password.
    let refuse = |why: &str, help: &str| {
        UnlocatedProblem::new(at.span(), format!("this URL {why}")).help(help).hidden_if(at.contains('@'))
    };
    let example = "write it like \"https://mcp.example.com/mcp\"";
    let url = url::Url::parse(at).map_err(|error| refuse(&format!("is not valid: {error}"), example))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("is neither http nor https", example));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(
            "has credentials in it",
            "put them into `headers = { Authorization = { secret = \"name\" } }`",
        ));
    }
    if url.fragment().is_some() {
        return Err(refuse("has a fragment, which is never sent to a server", "take the part from `#` on out"));
    }
    Ok(url)
}
