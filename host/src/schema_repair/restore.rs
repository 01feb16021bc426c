//! Brings arguments that fit the repaired schema into the form that the source asked for. Values that need no change
//! keep their bytes.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::budget::{WorkBudget, weight_of_text};
use super::correct::corrected;
use super::plan::{MemberPlan, ObjectPlan, RestorePlan, ValuePlan};
use super::types::Types;
use crate::protocol::Json;

/// The largest number of steps in which the arguments of one call are restored: each look at a value is one, and at
/// each member of an object. Alternatives in alternatives are tried again and again; beyond this limit values are kept
/// unchanged.
const MAX_STEPS: usize = 250_000;

/// The number of bytes of a value that are read in one step, each time it is looked at.
const BYTES_PER_STEP: usize = 1024;

/// The number of described members that are searched for missing ones in one step.
const MEMBERS_PER_STEP: usize = 32;

/// The reason why arguments cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Two arguments stand for the same one of the source's.
    #[error("two arguments stand for `{0}` of the tool; send one of them")]
    Twice(String),
}

/// The reason why a value is not restored by a plan.
enum Failure {
    Twice(String),
    /// It does not fit the plan, which is only tried.
    Unfit,
}

/// One member that was sent, with the rest of the path to its place.
struct Part {
    path: Vec<String>,
    value: Json,
}

/// Restores the arguments of one call.
struct Restorer {
    steps: WorkBudget,
    trial: Trial,
}

/// Whether an alternative is only tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// It is applied: types are corrected.
    No,
    /// Nothing is corrected, and what does not fit is a failure; members that the source does not name fit.
    Lenient,
    /// Those do not fit either, unless the source says that there may be others.
    Strict,
}

/// Returns the arguments in the source's form, or `None` if they have it.
pub(super) fn restore(plan: &RestorePlan, arguments: &Json) -> Result<Option<Json>, RestoreError> {
    let mut restorer = Restorer { steps: WorkBudget::new(MAX_STEPS), trial: Trial::No };
    match restorer.value(plan, arguments) {
        Ok(restored) => Ok(restored.and_then(|text| Json::parse(text).ok())),
        Err(Failure::Twice(name)) => Err(RestoreError::Twice(name)),
        Err(Failure::Unfit) => Ok(None),
    }
}

impl Restorer {
    /// Counts steps. Returns false if these are too many. Then an alternative that is only tried does not fit.
    fn spend(&mut self, steps: usize) -> Result<bool, Failure> {
        match self.steps.spend(steps) {
            false if self.trial != Trial::No => Err(Failure::Unfit),
            affordable => Ok(affordable),
        }
    }

    /// Returns the text of the restored value, or `None` if it stays unchanged.
    fn value(&mut self, plan: &RestorePlan, value: &Json) -> Result<Option<String>, Failure> {
        let steps = if matches!(plan, RestorePlan::Keep) { 1 } else { steps_of(value) };
        if !self.spend(steps)? {
            return Ok(None);
        }
        match plan {
            RestorePlan::Keep => Ok(None),
            RestorePlan::Value(plan) => self.described(plan, value),
            RestorePlan::Variants(plans) => self.variant(plans, value),
        }
    }

    fn described(&mut self, plan: &ValuePlan, value: &Json) -> Result<Option<String>, Failure> {
        if let Some(values) = plan.values.as_ref().filter(|values| !values.contains(value)) {
            let text = value.read::<String>().ok();
            return match text.and_then(|text| values.by_text.get(&text)) {
                Some(meant) => Ok(Some(meant.as_str().to_owned())),
                None if self.trial != Trial::No => Err(Failure::Unfit),
                None => Ok(None),
            };
        }
        let own = Types::of_text(value);
        if !plan.types.contains(own) {
            if self.trial != Trial::No {
                return Err(Failure::Unfit);
            }
            let Some(meant) = corrected(value, plan.types) else { return Ok(None) };
            let further = self.described(plan, &meant)?;
            return Ok(Some(further.unwrap_or_else(|| meant.as_str().to_owned())));
        }
        match (&plan.object, &plan.items) {
            (Some(object), _) if own == Types::OBJECT => self.object(object, value),
            (_, Some(items)) if own == Types::ARRAY => self.items(items, value),
            _ => Ok(None),
        }
    }

    /// Restores by the first alternative that fits the unchanged value, or else by the one that resembles it most.
    fn variant(&mut self, plans: &[RestorePlan], value: &Json) -> Result<Option<String>, Failure> {
        let trials: &[Trial] = match self.trial {
            Trial::No => &[Trial::Strict, Trial::Lenient],
            Trial::Lenient => &[Trial::Lenient],
            Trial::Strict => &[Trial::Strict],
        };
        for trial in trials {
            let before = mem::replace(&mut self.trial, *trial);
            let fitting = plans.iter().find_map(|plan| self.value(plan, value).ok());
            self.trial = before;
            if let Some(restored) = fitting {
                return Ok(restored);
            }
        }
        if self.trial != Trial::No {
            return Err(Failure::Unfit);
        }
        let own = Types::of_text(value);
        let similar = plans.iter().filter(|plan| plan.types().contains(own));
        if let Some(most) = similar.rev().max_by_key(|plan| plan.object().map(|object| self.resemblance(object, value)))
        {
            return self.value(most, value);
        }
        for plan in plans {
            if let Some(restored) = self.value(plan, value)? {
                return Ok(Some(restored));
            }
        }
        Ok(None)
    }

    fn items(&mut self, plan: &RestorePlan, value: &Json) -> Result<Option<String>, Failure> {
        let items = value.items().unwrap_or_default();
        let mut restored = Vec::with_capacity(items.len());
        for item in &items {
            restored.push(self.value(plan, item)?);
        }
        if restored.iter().all(Option::is_none) {
            return Ok(None);
        }
        let texts: Vec<_> =
            restored.iter().zip(&items).map(|(restored, item)| restored.as_deref().unwrap_or(item.as_str())).collect();
        Ok(Some(format!("[{}]", texts.join(","))))
    }

    fn object(&mut self, plan: &ObjectPlan, value: &Json) -> Result<Option<String>, Failure> {
        let (parts, moved) = self.parts_of(plan, value)?;
        self.members(plan, parts, moved)
    }

    /// Returns the members of an object, each with the path to its place, and whether any of them is not there already.
    fn parts_of(&mut self, plan: &ObjectPlan, value: &Json) -> Result<(Vec<Part>, bool), Failure> {
        let members = value.members().unwrap_or_default();
        self.spend(members.len())?;
        let (mut parts, mut moved) = (Vec::with_capacity(members.len()), false);
        for (key, value) in members {
            let path = plan.path_of(&key, &mut self.steps);
            moved |= path.is_some();
            parts.push(Part { path: path.unwrap_or_else(|| vec![key]), value });
        }
        Ok((parts, moved))
    }

    /// Returns how much an object resembles its description: whether all that it needs is there, and how many of its
    /// members are known.
    fn resemblance(&mut self, plan: &ObjectPlan, value: &Json) -> (bool, usize) {
        if !self.steps.spend(steps_of(value) + plan.members().len() / MEMBERS_PER_STEP) {
            return (false, 0);
        }
        let Ok((parts, _)) = self.parts_of(plan, value) else { return (false, 0) };
        let names: HashSet<String> = parts.into_iter().filter_map(|part| part.path.into_iter().next()).collect();
        let complete =
            plan.members().iter().all(|member| !member.required || member.moved_out || names.contains(&member.name));
        (complete, names.iter().filter(|name| plan.member(name).is_some()).count())
    }

    /// Puts the parts of an object together. `moved` is true if that changes the object for certain.
    fn members(&mut self, plan: &ObjectPlan, parts: Vec<Part>, moved: bool) -> Result<Option<String>, Failure> {
        let (mut order, mut by_name) = (Vec::<String>::new(), HashMap::<String, Vec<Part>>::new());
        for Part { mut path, value } in parts {
            if path.is_empty() {
                continue;
            }
            let name = path.remove(0);
            let group = by_name.entry(name.clone()).or_default();
            if group.is_empty() {
                order.push(name);
            }
            group.push(Part { path, value });
        }
        let (mut changed, mut texts) = (moved, Vec::with_capacity(order.len()));
        for name in order {
            let member = plan.member(&name);
            if member.is_none() && self.trial == Trial::Strict && !plan.open {
                return Err(Failure::Unfit);
            }
            let group = by_name.remove(&name).unwrap_or_default();
            match self.member(plan, member, &name, group)? {
                Member::Same(value) => texts.push((name, value.as_str().to_owned())),
                Member::Restored(text) => {
                    changed = true;
                    texts.push((name, text));
                }
                Member::LeftOut => changed = true,
            }
        }
        for member in self.missing(plan, &texts)? {
            match member.plan.object().filter(|_| member.moved_out) {
                Some(inner) => {
                    if !self.spend(1 + weight_of_text(&member.name))? {
                        break;
                    }
                    changed = true;
                    let made = self.members(inner, Vec::new(), true)?;
                    texts.push((member.name.clone(), made.unwrap_or_else(|| "{}".to_owned())));
                }
                None if self.trial != Trial::No => return Err(Failure::Unfit),
                None => {}
            }
        }
        let written = || texts.iter().map(|(name, text)| format!("{}:{text}", Json::of(name).as_str()));
        Ok(changed.then(|| format!("{{{}}}", written().collect::<Vec<_>>().join(","))))
    }

    /// Returns the members that are required and not among these.
    fn missing<'p>(
        &mut self,
        plan: &'p ObjectPlan,
        texts: &[(String, String)],
    ) -> Result<Vec<&'p MemberPlan>, Failure> {
        if !self.spend(plan.members().len() / MEMBERS_PER_STEP)? {
            return Ok(Vec::new());
        }
        let sent: HashSet<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        let required = plan.members().iter().filter(|member| member.required);
        Ok(required.filter(|member| !sent.contains(member.name.as_str())).collect())
    }

    /// Restores one member, which may have been sent in several parts.
    fn member(
        &mut self,
        plan: &ObjectPlan,
        member: Option<&MemberPlan>,
        name: &str,
        group: Vec<Part>,
    ) -> Result<Member, Failure> {
        if let [Part { path, value }] = group.as_slice()
            && path.is_empty()
        {
            let own = member.map(|member| &member.plan).or(plan.others.as_deref());
            let omittable = member.is_some_and(|member| !member.required && !member.plan.types().contains(Types::NULL));
            if omittable && *value == Json::null() && self.trial != Trial::Strict {
                return Ok(Member::LeftOut);
            }
            let restored = own.map_or(Ok(None), |own| self.value(own, value))?;
            return Ok(restored.map_or_else(|| Member::Same(value.clone()), Member::Restored));
        }
        let twice = || Failure::Twice(name.to_owned());
        let inner = member.and_then(|member| member.plan.object()).ok_or_else(twice)?;
        let mut parts = Vec::new();
        for Part { path, value } in group {
            match path.is_empty() {
                true if value.members().is_none() => return Err(twice()),
                true => parts.extend(self.parts_of(inner, &value)?.0),
                false => parts.push(Part { path, value }),
            }
        }
        Ok(Member::Restored(self.members(inner, parts, true)?.unwrap_or_else(|| "{}".to_owned())))
    }
}

/// The result of restoring a member.
enum Member {
    Same(Json),
    Restored(String),
    /// It is null, and the source takes no null there but can do without it.
    LeftOut,
}

/// Returns the number of steps that one look at a value takes.
fn steps_of(value: &Json) -> usize {
    1 + value.as_bytes().len() / BYTES_PER_STEP
}
