//! An approval plugin that asks a person, and reuses earlier answers within limits.
//!
//! The settings, with their defaults:
//!
//! ```toml
//! scopes    = ["once", "arguments", "session"]   # what the person may choose from; also available: "principal"
//! valid-for = "8h"                               # how long a remembered answer holds: "90s", "15m", "8h", "7d", or seconds
//! uses      = 0                                  # how often it may be used; 0 means no limit until it expires
//! ```
//!
//! `once` is always offered. A grave tool, one that may be destructive or may reach an open world, gets only `once` and
//! `arguments`, and no wider earlier answer is used for it. If several earlier answers cover a call, the narrowest is
//! used, because it shows most exactly that a person meant this call.

use portcullis_plugin::{Approval, Ask, Call, Grant, Offer, Scope, Settlement, settings};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// The longest time for which an answer may be remembered: 30 days, the limit of the contract.
const MAX_VALID_FOR: u32 = 30 * 24 * 60 * 60;

struct ApprovalMemory(Settings);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    scopes: Vec<ScopeName>,
    valid_for: Seconds,
    uses: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scopes: vec![ScopeName::Once, ScopeName::Arguments, ScopeName::Session],
            valid_for: Seconds(8 * 60 * 60),
            uses: 0,
        }
    }
}

/// The scopes, from the narrowest to the widest.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum ScopeName {
    Once,
    Arguments,
    Session,
    Principal,
}

impl Approval for ApprovalMemory {
    fn configure(settings: &str) -> Result<Self, String> {
        settings::parse(settings).map(Self)
    }

    fn settle(&self, _call: &impl Call, ask: &impl Ask) -> Result<Settlement, String> {
        let grave = ask.grave();
        let usable = ask.grants().into_iter().filter(|grant| self.covers(grant, grave));
        if let Some(grant) = usable.min_by_key(|grant| (ScopeName::of(grant.scope), grant.age)) {
            return Ok(Settlement::Remembered(grant.id));
        }
        let scopes = [ScopeName::Once, ScopeName::Arguments, ScopeName::Session, ScopeName::Principal];
        let scopes = scopes.into_iter().filter(|scope| self.offers(*scope, grave)).map(ScopeName::scope).collect();
        Ok(Settlement::Question(Offer { scopes, valid_for: self.0.valid_for.0, uses: self.0.uses }))
    }
}

impl ApprovalMemory {
    /// Reports whether an earlier answer may be used. An answer given under wider settings does not outlive them.
    fn covers(&self, grant: &Grant, grave: bool) -> bool {
        self.offers(ScopeName::of(grant.scope), grave) && grant.age <= self.0.valid_for.0
    }

    fn offers(&self, scope: ScopeName, grave: bool) -> bool {
        let light_enough = !grave || scope <= ScopeName::Arguments;
        scope == ScopeName::Once || (light_enough && self.0.scopes.contains(&scope))
    }
}

impl ScopeName {
    fn of(scope: Scope) -> Self {
        match scope {
            Scope::Once => Self::Once,
            Scope::Arguments => Self::Arguments,
            Scope::Session => Self::Session,
            Scope::Principal => Self::Principal,
        }
    }

    fn scope(self) -> Scope {
        match self {
            Self::Once => Scope::Once,
            Self::Arguments => Scope::Arguments,
            Self::Session => Scope::Session,
            Self::Principal => Scope::Principal,
        }
    }
}

/// A duration in whole seconds, from one second to [`MAX_VALID_FOR`].
struct Seconds(u32);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Duration;
        impl Visitor<'_> for Duration {
            type Value = Seconds;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(
                    f,
                    "a duration from one second to 30 days, such as \"15m\", \"8h\", \"7d\" or a number of seconds"
                )
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Seconds, E> {
                seconds(n, 1).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(n), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Seconds, E> {
                let unit = |unit| Some((text.strip_suffix(unit)?, unit));
                let parsed = ['s', 'm', 'h', 'd'].into_iter().find_map(unit).and_then(|(number, unit)| {
                    let digits = number.bytes().all(|b| b.is_ascii_digit());
                    let each = match unit {
                        's' => 1,
                        'm' => 60,
                        'h' => 60 * 60,
                        _ => 24 * 60 * 60,
                    };
                    seconds(number.parse().ok().filter(|_| digits)?, each)
                });
                parsed.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Duration)
    }
}

fn seconds(number: u64, each: u64) -> Option<Seconds> {
    let total = u32::try_from(number.checked_mul(each)?).ok()?;
    (1..=MAX_VALID_FOR).contains(&total).then_some(Seconds(total))
}

portcullis_plugin::export_approval!(ApprovalMemory);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use portcullis_plugin::fake::{FakeAsk, FakeCall};

    use super::*;

    fn settle(settings: &str, ask: &FakeAsk) -> Settlement {
        ApprovalMemory::configure(settings).unwrap().settle(&FakeCall::new("files", "write"), ask).unwrap()
    }

    fn offer(settings: &str, ask: &FakeAsk) -> Offer {
        match settle(settings, ask) {
            Settlement::Question(offer) => offer,
            other => panic!("a question, not {other:?}"),
        }
    }

    #[test]
    fn without_an_earlier_answer_a_person_is_asked() {
        let plain = offer("{}", &FakeAsk::default());
        assert_eq!(
            plain,
            Offer { scopes: vec![Scope::Once, Scope::Arguments, Scope::Session], valid_for: 28_800, uses: 0 }
        );
        let grave = FakeAsk { grave: true, ..FakeAsk::default() };
        assert_eq!(offer("{}", &grave).scopes, [Scope::Once, Scope::Arguments]);
        assert_eq!(offer(r#"{"scopes":["principal"]}"#, &grave).scopes, [Scope::Once]);
        assert_eq!(offer(r#"{"scopes":["principal"]}"#, &FakeAsk::default()).scopes, [Scope::Once, Scope::Principal]);
        assert_eq!(offer(r#"{"uses":3,"valid-for":60}"#, &grave).uses, 3);
    }

    #[test]
    fn the_narrowest_earlier_answer_is_used() {
        let ask = FakeAsk::default().grant("wide", Scope::Session, 1).grant("narrow", Scope::Arguments, 9).grant(
            "old",
            Scope::Arguments,
            99,
        );
        assert_eq!(settle("{}", &ask), Settlement::Remembered("narrow".into()));
    }

    #[test]
    fn an_answer_wider_or_older_than_the_settings_is_not_used() {
        let session = FakeAsk::default().grant("a", Scope::Session, 100);
        assert_eq!(settle("{}", &session), Settlement::Remembered("a".into()));
        assert!(matches!(settle(r#"{"scopes":["arguments"]}"#, &session), Settlement::Question(_)));
        assert!(matches!(settle(r#"{"valid-for":"99s"}"#, &session), Settlement::Question(_)));
        let grave = FakeAsk { grave: true, ..session };
        assert!(matches!(settle("{}", &grave), Settlement::Question(_)));
        assert!(matches!(settle("{}", &FakeAsk::default().grant("p", Scope::Principal, 0)), Settlement::Question(_)));
    }

    #[test]
    fn durations() {
        for (text, seconds) in
            [("1", 1), ("\"90s\"", 90), ("\"15m\"", 900), ("\"8h\"", 28_800), ("\"30d\"", MAX_VALID_FOR)]
        {
            assert_eq!(offer(&format!("{{\"valid-for\":{text}}}"), &FakeAsk::default()).valid_for, seconds, "{text}");
        }
        for text in [
            "0",
            "-1",
            "1.5",
            "\"0s\"",
            "\"31d\"",
            "\"8\"",
            "\"h\"",
            "\"+8h\"",
            "\"8 h\"",
            "\"1h30m\"",
            "\"99999999999999999999d\"",
            "null",
        ] {
            let error = ApprovalMemory::configure(&format!("{{\"valid-for\":{text}}}")).err().unwrap();
            assert!(error.starts_with("settings.valid-for: invalid "), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let error = |settings| ApprovalMemory::configure(settings).err().unwrap();
        assert!(error(r#"{"scopes":["once","always"]}"#).starts_with("settings.scopes[1]: unknown variant `always`"));
        assert!(error(r#"{"valid_for":1}"#).starts_with("settings.valid_for: unknown field"));
        assert!(error(r#"{"uses":-1}"#).starts_with("settings.uses: "));
    }
}
