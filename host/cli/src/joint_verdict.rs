//! The verdict of several policies together.

use serde_json::{Value, json};

/// The verdict of all policies together, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum JointVerdict {
    #[default]
    Pass,
    Ask,
    Deny,
}

/// A verdict with the policy that decided it: the first of the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DecidedBy {
    pub(crate) joint: JointVerdict,
    plugin: String,
    /// The code of an ask or a denial.
    code: Option<String>,
}

impl JointVerdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl DecidedBy {
    /// Takes in the verdict of one policy.
    pub(crate) fn add(&mut self, verdict: JointVerdict, plugin: &str, code: Option<&str>) {
        if verdict > self.joint {
            *self = Self { joint: verdict, plugin: plugin.to_owned(), code: code.map(str::to_owned) };
        }
    }

    /// Returns the verdict about a result. Nobody is asked about one: it is withheld.
    pub(crate) fn of_result(self) -> Self {
        match self.joint {
            JointVerdict::Ask => {
                Self { joint: JointVerdict::Deny, code: Some("result-asked".to_owned()), plugin: self.plugin }
            }
            JointVerdict::Pass | JointVerdict::Deny => self,
        }
    }

    /// Returns the code of an ask or a denial, if it is known.
    pub(crate) fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    pub(crate) fn in_words(&self) -> String {
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        match self.joint {
            JointVerdict::Pass => "passed".to_owned(),
            JointVerdict::Ask => format!("{} asked{code}", self.plugin),
            JointVerdict::Deny => format!("{} denied{code}", self.plugin),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let plugin = Some(&self.plugin).filter(|plugin| !plugin.is_empty());
        json!({ "verdict": self.joint.word(), "plugin": plugin, "code": self.code })
    }
}
