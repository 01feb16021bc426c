//! Files of fixtures: plugins as a configuration names them, and cases of what they must decide.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use portcullis::config::Config;
use serde::Deserialize;
use serde_json::Value;

use super::call_facts::CallFacts;
use super::decision::{DecidedVerdict, Decision};

/// A file of fixtures.
pub(super) struct Fixture {
    pub(super) file: PathBuf,
    /// A configuration with the plugins, and nothing else.
    pub(super) config: Config,
    pub(super) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFixture {
    #[serde(default)]
    policies: Vec<Value>,
    #[serde(default)]
    transforms: Vec<Value>,
    #[serde(default)]
    cases: Vec<Case>,
}

/// A call, and what the plugins must decide about it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) call: CallFacts,
    expect: ExpectedVerdict,
    /// The code of the denial.
    code: Option<String>,
    /// A part of a reason to ask, or of the message of the denial.
    message: Option<String>,
    /// The arguments, or the outcome in the phase `result`, as a transform must rewrite them.
    becomes: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExpectedVerdict {
    Pass,
    Ask,
    Deny,
}

impl Fixture {
    /// Reads a file. Paths of plugins in it are relative to its folder.
    ///
    /// # Errors
    /// The file cannot be read, or a part of it is not valid.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("{shown} cannot be read"))?;
        Self::parse(file, &text).with_context(|| format!("{shown} is not a valid fixture"))
    }

    fn parse(file: &Path, text: &str) -> anyhow::Result<Self> {
        let RawFixture { policies, transforms, cases } = toml::from_str(text).map_err(|error| anyhow!("{error}"))?;
        if policies.is_empty() && transforms.is_empty() {
            bail!("it names no plugin: add `[[policies]]` or `[[transforms]]` as in portcullis.toml");
        }
        if cases.is_empty() {
            bail!("it has no case: add `[[cases]]` with `name`, `call` and `expect`");
        }
        if let Some(case) = cases.iter().find(|case| case.code.is_some() && case.expect == ExpectedVerdict::Pass) {
            bail!(
                "the case {:?} has a `code`, which a call that passes has not: write `expect = \"deny\"` or `\"ask\"`",
                case.name
            );
        }
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let builder = policies.into_iter().fold(Config::builder(folder), |builder, table| builder.policy(table));
        let builder = transforms.into_iter().fold(builder, |builder, table| builder.transform(table));
        Ok(Self { file: file.to_owned(), config: builder.build()?, cases })
    }
}

impl Case {
    /// Returns how a decision differs from what the case expects, a line for each difference.
    pub(super) fn differences(&self, decision: &Decision) -> Vec<String> {
        let mut lines = Vec::new();
        let (expected, decided) = (self.expect.word(), decision.verdict.word());
        if expected != decided {
            lines.push(format!("expected {expected}, and {}", decision.described()));
        } else if let (Some(expected), Some(code)) = (&self.code, decision.verdict.code())
            && expected != code
        {
            lines.push(format!("expected the code {expected:?}, and {}", decision.described()));
        } else if self.code.is_none() && decision.verdict.code().is_some_and(|code| code.starts_with("plugin-")) {
            lines.push(format!(
                "expected a verdict, and a plugin failed: {}; a case that means this has its `code`",
                decision.described()
            ));
        }
        if let Some(expected) = &self.message
            && !decision.reasons.iter().any(|reason| reason.contains(expected.as_str()))
        {
            lines.push(format!("expected {expected:?} in the message, and {}", decision.described()));
        }
        if let Some(expected) = &self.becomes {
            match &decision.replaced {
                Some(json) if json.to_value() == *expected => {}
                Some(json) => lines.push(format!("expected it to become {expected}, and it became {}", json.as_str())),
                None => lines.push(format!("expected it to become {expected}, and nothing rewrote it")),
            }
        }
        lines
    }
}

impl ExpectedVerdict {
    fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Decision {
    /// Returns the decision in words.
    pub(super) fn described(&self) -> String {
        let plugin = self.plugin.as_deref().unwrap_or_default();
        let reasons = self.reasons.join("; ");
        match &self.verdict {
            DecidedVerdict::Pass => "every plugin passed it".to_owned(),
            DecidedVerdict::Ask(code) => format!("{plugin} asked ({code}): {reasons}"),
            DecidedVerdict::Deny(code) => format!("{plugin} denied it ({code}): {reasons}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const POLICY: &str = "[[policies]]\nplugin = \"builtin:rules\"\nsettings = { default = \"allow\" }\n";

    fn parsed(text: &str) -> Result<Fixture, String> {
        Fixture::parse(Path::new("fixtures/a.toml"), text).map_err(|error| format!("{error:#}"))
    }

    fn case(lines: &str) -> Case {
        let text = format!("{POLICY}[[cases]]\nname = \"a\"\ncall = {{ tool = \"read\" }}\n{lines}");
        parsed(&text).unwrap().cases.remove(0)
    }

    #[test]
    fn a_fixture_without_a_plugin_or_a_case_or_with_a_misspelt_key_is_refused() {
        for (text, expected) in [
            ("", "it names no plugin"),
            (POLICY, "it has no case"),
            (
                &format!("{POLICY}[[cases]]\nname = 'a'\ncall = {{ tool = 'read' }}\nexpects = 'pass'\n"),
                "unknown field `expects`",
            ),
            (
                &format!("{POLICY}[[cases]]\nname = 'a'\ncall = {{ tol = 'read' }}\nexpect = 'pass'\n"),
                "unknown field `tol`",
            ),
            (
                &format!("{POLICY}[[cases]]\nname = 'a'\ncall = {{ tool = 'read' }}\nexpect = 'pass'\ncode = 'x'\n"),
                "which a call that passes has not",
            ),
            ("[[policies]]\nplugin = 'rules'\n", "it has no case"),
        ] {
            let error = parsed(text).map(|fixture| fixture.file).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn each_difference_between_a_decision_and_a_case_is_a_line() {
        let decision = |verdict, reasons: &[&str], replaced: Option<&str>| Decision {
            verdict,
            plugin: Some("p.wasm".to_owned()),
            reasons: reasons.iter().map(ToString::to_string).collect(),
            replaced: replaced.map(|text| portcullis::protocol::Json::parse(text.to_owned()).unwrap()),
        };
        let denied = decision(DecidedVerdict::Deny("outside".to_owned()), &["/etc is outside"], None);
        let fits = |lines: &str, decision: &Decision| case(lines).differences(decision);
        assert!(fits("expect = 'deny'\ncode = 'outside'\nmessage = 'outside'", &denied).is_empty());
        assert_eq!(fits("expect = 'pass'", &denied).len(), 1);
        assert_eq!(fits("expect = 'deny'\ncode = 'inside'", &denied).len(), 1);
        assert_eq!(fits("expect = 'deny'\nmessage = 'inside'", &denied).len(), 1);
        assert_eq!(fits("expect = 'deny'\nbecomes = { a = 1 }", &denied).len(), 1);
        let asked = decision(DecidedVerdict::Ask("odd".to_owned()), &["it is odd"], None);
        assert!(fits("expect = 'ask'\ncode = 'odd'", &asked).is_empty());
        assert_eq!(fits("expect = 'ask'\ncode = 'even'", &asked).len(), 1);
        let replaced = decision(DecidedVerdict::Pass, &[], Some(r#"{"a":1}"#));
        assert!(fits("expect = 'pass'\nbecomes = { a = 1 }", &replaced).is_empty());
        assert_eq!(fits("expect = 'pass'\nbecomes = { a = 2 }", &replaced).len(), 1);
    }
}
