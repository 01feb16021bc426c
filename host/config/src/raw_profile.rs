//! Profiles of `portcullis.toml` as written.

use portcullis_core::call::TrustLevel;
use schemars::JsonSchema;
use serde::Deserialize;

use super::raw::Located;
use super::{Approve, Destructive, Detail, Exposure, Images, Instructions, Links, Schemas, StructuredContent};

/// The rules under which a caller calls: which sources and tools it sees, and when a person is asked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Profile")]
pub(super) struct RawProfile {
    /// The trust level of the callers. "sandbox" sees no source, "low" only the tools that `allow` names, "medium" and
    /// "high" everything that is not narrowed. Default: "medium".
    pub trust: Option<TrustLevel>,
    /// Globs over the names of the sources that are visible. Default: all.
    pub sources: Option<Vec<Located<String>>>,
    /// Globs over the exposed names of the tools that are visible. Default: all that `trust` admits.
    pub allow: Option<Vec<Located<String>>>,
    /// Globs over the exposed names of the tools that are hidden; wins over `allow`.
    #[serde(default)]
    pub deny: Vec<Located<String>>,
    /// "listed": an agent is shown every tool at once. "deferred": an agent is shown only `find_tools`, `describe_tool`
    /// and `call_tool`, and searches for the others. Default: "listed".
    pub tools: Option<Exposure>,
    /// "as-is": an agent is shown the input schemas of tools as their sources write them. "repair": schemas are
    /// rewritten for models that read only a part of JSON Schema, and what such a model sends is restored before
    /// policies see it. A source with `names = "plain"` is left as it is. Default: "as-is".
    pub schemas: Option<Schemas>,
    /// The treatment of images in results, prompts and resources. "strip": a text takes the place of each, for models
    /// without vision. Default: "keep".
    pub images: Option<Images>,
    /// "text": structured content of a result is added to it as a text, for clients that do not read it, unless a text
    /// of the result says the same. Default: "as-is".
    pub structured_content: Option<StructuredContent>,
    /// The treatment of links in results, prompts and resources. "text": those to hosts that the source did not declare
    /// are shown as text, so that no client opens or fetches them. Declared are the host of its `url`, those of its
    /// cell's `network`, and its `link-hosts`. Default: "keep".
    pub links: Option<Links>,
    /// The treatment of text in results, prompts and resources that reads like an instruction to a model. "mark": a
    /// note stands before it that says which source it comes from, and that it is data; for policies about information
    /// flow the session has the label "instructions" from then on. Default: "keep".
    pub instructions: Option<Instructions>,
    /// The largest result of a tool that an agent gets at once, from "8KiB" to "16MiB". Of a larger one it gets the
    /// beginning, and the whole as a resource that it can read in parts for an hour. Default: no limit but that of a
    /// message.
    pub max_result: Option<Located<String>>,
    /// The calls before which a person is asked although no policy asks. Default: "risky".
    pub approve: Option<Approve>,
    /// The treatment of tools that their own source calls destructive, unless its cell can neither write nor reach a
    /// network. "off": they are neither shown nor called until a person accepts them with `portcullis lock accept`;
    /// "ask": they are shown, and `approve` decides. Default: "off" if `approve` is "risky", otherwise "ask".
    pub destructive: Option<Destructive>,
    /// True if sources may use the agent's model (`sampling/createMessage`). Default: false.
    pub sampling: Option<bool>,
    /// True if an agent may read the status of its sources as the resource `portcullis://status`: whether each is
    /// connected, how often it failed, and how many of its tools the agent sees. Default: false.
    pub status: Option<bool>,
    /// The amount of detail of arguments and results that the ledger keeps. Default: "shape".
    pub record: Option<Located<Detail>>,
    /// The budget that all callers under this profile share. Default: no limit.
    pub budget: Option<Located<RawBudget>>,
}

/// The budget that all callers under a profile share: an amount for each second, minute, hour or day (`s`, `m`, `h`,
/// `d`). The whole amount may be used at once, and is restored at an even rate. At least one of the three is required.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Budget")]
pub(super) struct RawBudget {
    /// The number of calls, such as "1000/h".
    pub calls: Option<Located<String>>,
    /// The bytes of arguments and results, such as "100MiB/h".
    pub bytes: Option<Located<String>>,
    /// The time that calls take at their sources, such as "30m/h".
    pub time: Option<Located<String>>,
}
