//! The call that policies judge.

/// A limit of the budget of a profile, and its remainder.
///
/// # Example
/// ```
/// use portcullis::{BudgetLimit, CallView, Verdict};
///
/// /// The last ten calls of a budget are for people.
/// fn keeps_a_reserve(call: &CallView) -> Verdict {
///     let is_low = call.budget().iter().any(|limit| limit.name == "calls" && limit.left < 10);
///     if is_low { Verdict::deny("reserve", "the last ten calls are for people") } else { Verdict::Pass }
/// }
/// # fn main() -> Result<(), portcullis::error::NameError> {
/// let mail = CallView::builder("mail".parse()?, "send", &serde_json::json!({}));
/// let late = mail.budget([BudgetLimit::stated("calls", 100, 3)]).build();
/// assert_ne!(keeps_a_reserve(&late), Verdict::Pass);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::call::BudgetLimit;
/// A call as shown to a policy.
///
/// # Example
/// ```
/// # use portcullis::{CallView, Verdict};
/// fn only_reads(call: &CallView) -> Verdict {
///     if call.source().as_str() == "files" && call.tool().starts_with("read") {
///         return Verdict::Pass;
///     }
///     Verdict::ask("not-a-read", format!("{} wants to use {}", call.principal(), call.exposed_name()))
/// }
/// ```
#[doc(inline)]
pub use portcullis_core::call::CallView;
/// A builder of a call that no agent has made, for the test of a policy.
///
/// # Example
/// ```
/// use portcullis::{CallView, CallViewBuilder, Verdict};
/// use serde_json::json;
///
/// fn small_sums(call: &CallView) -> Verdict {
///     match call.arguments().get("amount").and_then(|amount| amount.read().ok()) {
///         Some(0..=100) => Verdict::Pass,
///         _ => Verdict::deny("large", "more than 100"),
///     }
/// }
/// # fn main() -> Result<(), portcullis::error::NameError> {
/// let pay: CallViewBuilder = CallView::builder("bank".parse()?, "pay", &json!({ "amount": 900 }));
/// assert_eq!(small_sums(&pay.build()), Verdict::deny("large", "more than 100"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::call::CallViewBuilder;
/// The numbers of calls that an agent made in its session before one call.
///
/// # Example
/// ```
/// use portcullis::{CallView, EarlierCalls, Verdict};
///
/// fn at_most_five(call: &CallView) -> Verdict {
///     match call.earlier_calls().of_item {
///         0..5 => Verdict::Pass,
///         _ => Verdict::deny("too-many", "five are enough for one session"),
///     }
/// }
/// # fn main() -> Result<(), portcullis::error::NameError> {
/// let mail = CallView::builder("mail".parse()?, "send", &serde_json::json!({}));
/// let sixth = mail.earlier_calls(EarlierCalls::stated(9, 5)).build();
/// assert_ne!(at_most_five(&sixth), Verdict::Pass);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::call::EarlierCalls;
/// A phase of a call in which policies are asked.
///
/// # Example
/// ```
/// use portcullis::{Phase, PluginTable};
/// let policy = PluginTable::new("native:on-duty").on([Phase::Call, Phase::List]);
/// ```
#[doc(inline)]
pub use portcullis_core::call::Phase;
/// The risk of a tool's calls, which decides whether a person is asked.
///
/// # Example
/// ```
/// # fn show(tools: &[portcullis::Tool]) {
/// let risky = tools.iter().filter(|tool| tool.risk == portcullis::Risk::Risky).count();
/// println!("{risky} tools can change or disclose something");
/// # }
/// ```
#[doc(inline)]
pub use portcullis_core::call::Risk;
/// The trust in the callers of a profile.
///
/// # Example
/// ```
/// use portcullis::{ProfileTable, TrustLevel};
/// let guests = ProfileTable::new().trust(TrustLevel::Low).allow(["calc__*"]);
/// ```
#[doc(inline)]
pub use portcullis_core::call::TrustLevel;
