//! Evaluates a server at a URL: its offers and answers under the conditions that it can notice. The activity of its
//! machine is not visible.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use portcullis::egress::shown;
use portcullis::source::HttpConnection;
use portcullis_evaluate::{Condition, Evaluation, EvaluationTarget, Observation, PriorKnowledge};
use tokio::time::timeout;
use url::Url;

use super::false_home::work_folder;
use super::observe::RUN_TIMEOUT;
use super::run::EvaluationRun;
use super::server::{MAX_MESSAGE_BYTES, ServerConnection, ServerConversation};
use super::{judged, observe_all};

/// The conditions that a server elsewhere can notice: the others change only what a program on this machine finds.
const CONDITIONS: [Condition; 6] = [
    Condition::Baseline,
    Condition::Client("claude-ai"),
    Condition::Client("Visual Studio Code"),
    Condition::Client("cursor-vscode"),
    Condition::Values,
    Condition::Modern,
];

/// Returns the URL that a word is, if it is one.
pub(super) fn url(word: &str) -> Option<anyhow::Result<Url>> {
    let is_url = ["http://", "https://"].iter().any(|scheme| word.starts_with(scheme));
    is_url.then(|| Url::parse(word).with_context(|| format!("`{word}` is no URL")))
}

/// Speaks to the server under every condition, and judges its messages.
pub(super) async fn evaluate(url: Url, idle: Duration) -> anyhow::Result<Evaluation> {
    // Its query may hold a secret.
    let command = vec![shown(&url)];
    let observations = observe_all(&CONDITIONS, move |condition| observe(url.clone(), condition, idle)).await?;
    let unchecked = [
        "what the server does on its own machine, with the arguments that it is sent and with everything else",
        "how it treats other users, places and times: it was asked from here and now, without a login",
    ];
    let known = PriorKnowledge { unchecked: unchecked.map(str::to_owned).into(), ..PriorKnowledge::default() };
    judged(move || Evaluation::of(&command, &observations, EvaluationTarget::Remote, known)).await
}

/// Speaks to the server under one condition. A server that fails is an observation.
async fn observe(url: Url, condition: Condition, idle: Duration) -> anyhow::Result<Observation> {
    let mut run = EvaluationRun::begin(condition);
    let limit = RUN_TIMEOUT + idle;
    let work = async {
        match begin_conversation(&url, condition).await {
            Ok(mut server) => {
                let done = run.exercise(&mut server, &work_folder(condition), &[], idle).await;
                server.leave().await;
                done
            }
            // It does not speak the revision, which the report states.
            Err(_) if condition == Condition::Modern => Ok(()),
            Err(error) => Err(error),
        }
    };
    let failure = match timeout(limit, work).await {
        Ok(done) => done.err(),
        Err(_) => Some(anyhow!("it was not done within {} s", limit.as_secs())),
    };
    Ok(Observation { failure: failure.map(|error| format!("{error:#}")), ..run.observed() })
}

/// Begins a conversation by streamable HTTP, or by the transport of 2024-11-05 if the server speaks only that.
async fn begin_conversation(url: &Url, condition: Condition) -> anyhow::Result<ServerConversation> {
    let (client, era) = (condition.client(), condition.era());
    let http = HttpConnection::new(url, MAX_MESSAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
    let refused = match ServerConversation::begin(ServerConnection::Http(http), client, era).await {
        Ok(server) => return Ok(server),
        Err(refused) => refused,
    };
    match HttpConnection::open_sse(url, MAX_MESSAGE_BYTES).await {
        Ok(http) if condition != Condition::Modern => {
            ServerConversation::begin(ServerConnection::Http(http), client, era).await
        }
        _ => Err(refused),
    }
}
