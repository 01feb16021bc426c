//! A profile: the rules for a principal's calls.

use portcullis_core::call::TrustLevel;

use crate::quota::BudgetConfig;

/// One profile: `[profiles.NAME]`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ProfileConfig {
    /// The trust level of the callers under this profile.
    pub trust: TrustLevel,
    /// Globs over the names of the sources that it sees.
    pub sources: Vec<String>,
    /// Globs over the exposed names of the tools that it sees, or `None` for all that `trust` admits.
    pub allow: Option<Vec<String>>,
    /// Globs over the exposed names of the tools that it does not see; wins over `allow`.
    pub deny: Vec<String>,
    /// The way in which an agent finds the tools.
    pub tools: Exposure,
    /// The form in which an agent is shown the input schemas of tools.
    pub schemas: Schemas,
    /// The treatment of images in what a model gets.
    pub images: Images,
    /// The form in which a model gets structured content.
    pub structured_content: StructuredContent,
    /// The treatment of links in what a model gets.
    pub links: Links,
    /// The treatment of instructions in what a model gets.
    pub instructions: Instructions,
    /// The largest result of a tool that an agent gets at once, in bytes, or `None` for no limit but that of a message.
    pub max_result: Option<usize>,
    /// The calls before which a person is asked although no policy asks.
    pub approve: Approve,
    /// The treatment of tools that their own source calls destructive.
    pub destructive: Destructive,
    /// True if sources may use the agent's model.
    pub sampling: bool,
    /// True if an agent may read the status of its sources.
    pub status: bool,
    /// The amount of detail of each call that the ledger keeps.
    pub record: Detail,
    /// The budget that all callers under this profile share.
    pub budget: Option<BudgetConfig>,
}

/// The way in which an agent finds the tools that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// All tools are listed.
    #[default]
    Listed,
    /// The agent searches for tools: only `find_tools`, `describe_tool` and `call_tool` are listed.
    Deferred,
}

/// The form in which an agent is shown the input schemas of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schemas {
    /// As their sources write them, byte for byte.
    #[default]
    AsIs,
    /// Rewritten for models that read only a part of JSON Schema; arguments are restored before policies see them.
    Repair,
}

/// The treatment of images in what a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Images {
    /// They pass unchanged.
    #[default]
    Keep,
    /// A text takes the place of each.
    Strip,
}

/// The form in which a model gets structured content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StructuredContent {
    /// As the source sends it.
    #[default]
    AsIs,
    /// As a text too, unless a text of the result says the same.
    Text,
}

/// The treatment of links in what a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// They pass unchanged.
    #[default]
    Keep,
    /// Those to hosts that the source did not declare are shown as text.
    Text,
}

/// The treatment of instructions in what a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Instructions {
    /// They pass unchanged.
    #[default]
    Keep,
    /// A note stands before text that reads like an instruction to a model.
    Mark,
}

/// The calls before which a person is asked although no policy asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// A person is asked before risky calls.
    #[default]
    Risky,
    /// A person is asked before every call.
    Always,
    /// No person is asked, unless an accepted tool has changed. The broker logs a warning when it starts.
    Never,
}

impl Approve {
    /// Returns the word for it in a configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Risky => "risky",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// The treatment of tools that their own source calls destructive and whose cell lets them be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Destructive {
    /// They are neither shown nor called until a person has accepted them.
    #[default]
    Off,
    /// They are shown, and [`Approve`] decides whether a person is asked.
    Ask,
}

/// The amount of detail of arguments and results that the ledger keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// A keyed hash and a redacted shape.
    #[default]
    Shape,
    /// The bodies too, up to 1 MiB each.
    Full,
    /// The shape, and the bodies up to 1 MiB each, encrypted for the `recipients` of `[ledger]`.
    Sealed,
}
