//! One call, with what its session has seen before it.

use std::sync::{Arc, OnceLock};

use super::lookup::FoundOrigins;
use super::{FlowSnapshot, SeenMessage, SeenResult, SessionFlow};
use crate::call::Call;
use crate::flow::{CallFlow, Effect, Origin};
use crate::ledger::EventBody;
use crate::protocol::Json;

/// The most origins of one call that a plugin is given.
const MAX_ORIGINS: usize = 32;

/// The properties that a source and its cell give a call: the labels of its results, and its possible effects.
#[derive(Debug, Clone)]
pub struct SourceFlow {
    /// The labels of the source's results.
    pub labels: Arc<[String]>,
    /// The effects that the call can have.
    pub effects: &'static [Effect],
}

impl SourceFlow {
    /// Adds labels that the call's result has beside those of its source.
    #[must_use]
    pub(crate) fn with_labels(self, further: impl IntoIterator<Item = String>) -> Self {
        Self { labels: merged(&self.labels, further), ..self }
    }
}

/// Returns the labels of a source and these, sorted if there are any beside those of the source.
fn merged(own: &Arc<[String]>, further: impl IntoIterator<Item = String>) -> Arc<[String]> {
    let mut further = further.into_iter().filter(|label| !own.contains(label)).peekable();
    if further.peek().is_none() && own.is_sorted() {
        return Arc::clone(own);
    }
    let mut all: Vec<String> = own.iter().cloned().chain(further).collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// One call with the information flow of its session, at the moment at which it was made.
#[derive(Debug)]
pub struct TracedCall {
    session: Arc<SessionFlow>,
    source: SourceFlow,
    name: Arc<str>,
    exposed: Arc<str>,
    id: Arc<str>,
    /// The caller's own words in each form: the arguments, with the URI of a resource that no list names.
    texts: Vec<Json>,
    unlisted: Option<(&'static str, Json)>,
    /// The session before the call.
    snapshot: FlowSnapshot,
    found: OnceLock<FoundOrigins>,
}

impl TracedCall {
    /// Describes a call of this session. Its arguments are looked up when somebody asks for their origins.
    pub fn new(session: &Arc<SessionFlow>, source: SourceFlow, call: &Call) -> Arc<Self> {
        let unlisted = call.item.is_unlisted().then(|| (call.item.kind.key(), Json::of(&&*call.item.name)));
        let texts = vec![traced_text(&call.arguments, unlisted.as_ref())];
        Arc::new(Self {
            session: Arc::clone(session),
            source,
            name: call.source().as_str().into(),
            exposed: call.item.recorded_exposed().into(),
            id: call.id.as_str().into(),
            texts,
            unlisted,
            snapshot: session.snapshot(),
            found: OnceLock::new(),
        })
    }

    /// Describes the same call, whose source gets these arguments with values in place of placeholders: it comes from
    /// whatever either form comes from.
    #[must_use]
    pub(crate) fn with_values(&self, arguments: &Json) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(&self.session),
            source: self.source.clone(),
            name: Arc::clone(&self.name),
            exposed: Arc::clone(&self.exposed),
            id: Arc::clone(&self.id),
            texts: self.texts.iter().cloned().chain([traced_text(arguments, self.unlisted.as_ref())]).collect(),
            unlisted: self.unlisted.clone(),
            snapshot: self.snapshot.clone(),
            found: OnceLock::new(),
        })
    }

    /// Keeps what the agent is given of the result. It has the labels of the source, and those of the results that the
    /// arguments came from: a tool that only changes the form of a text does not take its labels away.
    pub fn keep_result(&self, result: &Json) {
        self.keep(self.result_labels(), result, SeenMessage::Result);
    }

    /// Keeps the part that the agent is given of a message other than the result, such as progress with a text.
    pub(crate) fn keep_message(&self, message: &Json) {
        self.keep(self.result_labels(), message, SeenMessage::Other);
    }

    /// Keeps a question of the source to the agent. It may repeat anything that the agent has given to the source, so it
    /// has the labels of everything that the session saw before.
    pub(crate) fn keep_question(&self, question: &Json) {
        self.keep(self.with_everything_seen(), question, SeenMessage::Other);
    }

    /// Returns what the ledger keeps: labels, effects, and the results that values of the arguments came from.
    #[must_use]
    pub fn describe(&self) -> EventBody {
        let effects: Vec<_> = self.source.effects.iter().map(|effect| effect.as_str().to_owned()).collect();
        let origin = |origin: &Origin| {
            EventBody::new()
                .with("call", &origin.call)
                .with("item", &origin.exposed)
                .with("source", &origin.source)
                .with("ago", origin.calls_ago)
                .with("labels", &origin.labels[..])
                .with("pointer", &origin.pointer)
        };
        EventBody::new()
            .with("source-labels", &self.source.labels[..])
            .with("effects", effects)
            .with("labels", &self.snapshot.labels[..])
            .with("traced", self.is_traced())
            .with("origins", self.origins().iter().map(origin).collect::<Vec<_>>())
    }

    /// Returns the labels under which a result of the call is kept.
    pub(crate) fn result_labels(&self) -> Arc<[String]> {
        if self.is_traced() {
            let origins = self.found().results.iter();
            merged(&self.source.labels, origins.flat_map(|(origin, _)| origin.labels.iter().cloned()))
        } else {
            self.with_everything_seen()
        }
    }

    /// Returns the labels of the source and of everything that the session saw before the call.
    fn with_everything_seen(&self) -> Arc<[String]> {
        merged(&self.source.labels, self.snapshot.labels.iter().cloned())
    }

    fn keep(&self, labels: Arc<[String]>, text: &Json, message: SeenMessage) {
        let (source, exposed, call) = (self.name.clone(), self.exposed.clone(), self.id.clone());
        self.session.keep(SeenResult { source, exposed, call, labels, number: 0, index: 0 }, text, message);
    }

    fn found(&self) -> &FoundOrigins {
        self.found.get_or_init(|| self.session.look_up(&self.texts))
    }

    fn origin(&self, (result, pointer): &(SeenResult, String)) -> Origin {
        let ago = (self.snapshot.results + 1).saturating_sub(result.number).max(1);
        Origin {
            source: Arc::clone(&result.source),
            exposed: Arc::clone(&result.exposed),
            call: Arc::clone(&result.call),
            calls_ago: u32::try_from(ago).unwrap_or(u32::MAX),
            labels: Arc::clone(&result.labels),
            pointer: pointer.clone(),
        }
    }
}

/// Returns arguments together with the URI, so that a text that is split over both is found.
fn traced_text(arguments: &Json, unlisted: Option<&(&'static str, Json)>) -> Json {
    let with_uri = unlisted.and_then(|(key, uri)| arguments.with(key, uri));
    with_uri.unwrap_or_else(|| arguments.clone())
}

impl CallFlow for TracedCall {
    fn source_labels(&self) -> &[String] {
        &self.source.labels
    }

    fn effects(&self) -> &[Effect] {
        self.source.effects
    }

    fn labels(&self) -> &[String] {
        &self.snapshot.labels
    }

    fn is_traced(&self) -> bool {
        self.snapshot.traced && !self.found().cut
    }

    fn origins(&self) -> Vec<Origin> {
        let all = &self.found().results;
        if all.len() <= MAX_ORIGINS {
            return all.iter().map(|found| self.origin(found)).collect();
        }
        // First those with a label that no later one has, then those with a label that no later one of their source has.
        let (mut labels, mut pairs): (Vec<&str>, Vec<(&str, &str)>) = Default::default();
        let (mut first, mut second, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for found in all {
            let (mut has_new_label, mut has_new_pair) = (false, false);
            for label in found.0.labels.iter().map(String::as_str) {
                let pair = (&*found.0.source, label);
                if !pairs.contains(&pair) {
                    has_new_pair = true;
                    pairs.push(pair);
                }
                if !labels.contains(&label) {
                    has_new_label = true;
                    labels.push(label);
                }
            }
            match (has_new_label, has_new_pair) {
                (true, _) => first.push(found),
                (false, true) => second.push(found),
                (false, false) => rest.push(found),
            }
        }
        first.into_iter().chain(second).chain(rest).take(MAX_ORIGINS).map(|found| self.origin(found)).collect()
    }
}
