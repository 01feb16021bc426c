//! The plan by which arguments are restored: the value that the source takes at each place, and its name.

use std::collections::HashMap;

use super::budget::{WorkBudget, weight_of_text};
use super::types::Types;
use crate::protocol::Json;

/// The known facts about one value of the source.
#[derive(Debug)]
pub(super) enum RestorePlan {
    /// Nothing: the value is kept.
    Keep,
    /// One description.
    Value(Box<ValuePlan>),
    /// Several plans; the first that fits counts.
    Variants(Vec<RestorePlan>),
}

/// One description of a value.
#[derive(Debug)]
pub(super) struct ValuePlan {
    /// The types that the source takes.
    pub(super) types: Types,
    /// The values that the source takes, if it lists them.
    pub(super) values: Option<Values>,
    /// The members, if it may be an object.
    pub(super) object: Option<ObjectPlan>,
    /// The items, if it may be an array.
    pub(super) items: Option<RestorePlan>,
}

/// The values that a source takes, each with the text by which a model chooses it.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) by_text: HashMap<String, Json>,
}

/// The members of an object.
#[derive(Debug, Default)]
pub(super) struct ObjectPlan {
    members: Vec<MemberPlan>,
    /// The places of the members by name.
    places: HashMap<String, usize>,
    /// The length of the longest of their names, in bytes.
    longest_name: usize,
    /// The path to a member or to one below it, by the name under which a model sees it, where that is another.
    pub(super) paths: HashMap<String, Vec<String>>,
    /// The plan of the members that are not named.
    pub(super) others: Option<Box<RestorePlan>>,
    /// True if the source says that there may be other members. Their names are never taken for paths.
    pub(super) open: bool,
}

/// One member of an object.
#[derive(Debug)]
pub(super) struct MemberPlan {
    /// The source's name.
    pub(super) name: String,
    pub(super) required: bool,
    /// True if it is an object that a model does not see, as its members were moved out. If it is required, it is made
    /// even if none of them was sent.
    pub(super) moved_out: bool,
    pub(super) plan: RestorePlan,
}

impl RestorePlan {
    /// Returns the plan of a value of these types about which nothing else is known.
    pub(super) fn of_types(types: Types) -> Self {
        Self::Value(Box::new(ValuePlan { types, values: None, object: None, items: None }))
    }

    pub(super) fn of_object(types: Types, object: ObjectPlan) -> Self {
        Self::Value(Box::new(ValuePlan { types, values: None, object: Some(object), items: None }))
    }

    /// Returns the plan of a value that may be null as well.
    pub(super) fn or_null(self) -> Self {
        match self {
            Self::Keep => Self::Keep,
            Self::Value(mut plan) => {
                plan.types = plan.types | Types::NULL;
                if let Some(values) = &mut plan.values {
                    values.by_text.entry("null".to_owned()).or_insert_with(Json::null);
                }
                Self::Value(plan)
            }
            Self::Variants(mut plans) => {
                plans.push(Self::of_types(Types::NULL));
                Self::Variants(plans)
            }
        }
    }

    /// Returns the types that the source takes.
    pub(super) fn types(&self) -> Types {
        match self {
            Self::Keep => Types::ALL,
            Self::Value(plan) => plan.types,
            Self::Variants(plans) => plans.iter().fold(Types::NONE, |types, plan| types | plan.types()),
        }
    }

    pub(super) fn object(&self) -> Option<&ObjectPlan> {
        match self {
            Self::Value(plan) => plan.object.as_ref(),
            Self::Keep | Self::Variants(_) => None,
        }
    }

    /// Reports whether no value is described by both. Returns false if that takes too many comparisons to find out.
    pub(super) fn is_disjoint(&self, other: &Self, comparisons: &mut WorkBudget) -> bool {
        if !comparisons.spend(1) {
            return false;
        }
        let (Self::Value(a), Self::Value(b)) = (self, other) else {
            return self.types().and(other.types()) == Types::NONE;
        };
        if a.types.and(b.types) == Types::NONE {
            return true;
        }
        if let (Some(a), Some(b)) = (&a.values, &b.values) {
            return a.is_disjoint(b, comparisons);
        }
        let (Some(a_object), Some(b_object)) = (&a.object, &b.object) else { return false };
        let mut told_apart = |member: &MemberPlan| {
            if !comparisons.spend(1) {
                return false;
            }
            let other = b_object.member(&member.name).filter(|other| other.required && member.required);
            other.is_some_and(|other| member.plan.is_disjoint(&other.plan, comparisons))
        };
        a.types.and(b.types) == Types::OBJECT && a_object.members().iter().any(&mut told_apart)
    }
}

impl Values {
    fn is_disjoint(&self, other: &Self, comparisons: &mut WorkBudget) -> bool {
        let mut differs =
            |value: &Json| comparisons.spend(1 + weight_of_text(value.as_str())) && !other.contains(value);
        self.by_text.values().all(&mut differs)
    }

    /// Reports whether the source lists exactly this value.
    pub(super) fn contains(&self, value: &Json) -> bool {
        let text = value.read::<String>().unwrap_or_else(|_| value.as_str().to_owned());
        self.by_text.get(&text).is_some_and(|known| known == value || known.to_value() == value.to_value())
    }
}

impl ObjectPlan {
    /// Makes the plan of an object without named members.
    pub(super) fn new(open: bool, others: Option<Box<RestorePlan>>) -> Self {
        Self { open, others, ..Self::default() }
    }

    pub(super) fn add(&mut self, member: MemberPlan) {
        self.places.insert(member.name.clone(), self.members.len());
        self.longest_name = self.longest_name.max(member.name.len());
        self.members.push(member);
    }

    pub(super) fn members(&self) -> &[MemberPlan] {
        &self.members
    }

    pub(super) fn member(&self, name: &str) -> Option<&MemberPlan> {
        self.members.get(*self.places.get(name)?)
    }

    pub(super) fn member_mut(&mut self, name: &str) -> Option<&mut MemberPlan> {
        self.members.get_mut(*self.places.get(name)?)
    }

    /// Returns the path that a key stands for, if it is a name that only models see, or a path with dots. Otherwise the
    /// key stands for itself, and also where it takes too many steps to find out.
    pub(super) fn path_of(&self, key: &str, steps: &mut WorkBudget) -> Option<Vec<String>> {
        if steps.is_spent() || self.member(key).is_some() {
            return None;
        }
        match self.paths.get(key) {
            Some(path) => steps.spend(path.iter().map(|name| weight_of_text(name)).sum()).then(|| path.clone()),
            None => self.dotted(key, steps),
        }
    }

    /// Reads `a.b.c` as a path if every part but the last names an object, and the last a member of it. A part may
    /// itself contain dots, so each dot may be the end of the first part that comes early enough for the name of a
    /// member.
    fn dotted(&self, key: &str, steps: &mut WorkBudget) -> Option<Vec<String>> {
        let dots = key.match_indices('.').filter(|_| !self.open);
        let dots = dots.map(|(dot, _)| dot).take_while(|dot| *dot <= self.longest_name);
        let mut splits = dots.filter_map(|dot| Some((key.get(..dot)?, key.get(dot + 1..)?)));
        splits.find_map(|(first, rest)| {
            let inner = steps.spend(1 + weight_of_text(first)).then(|| self.member(first)?.plan.object())??;
            let may_be_name = rest.len() <= inner.longest_name && steps.spend(weight_of_text(rest));
            let path = if may_be_name && inner.member(rest).is_some() {
                vec![rest.to_owned()]
            } else {
                inner.dotted(rest, steps)?
            };
            Some(std::iter::once(first.to_owned()).chain(path).collect())
        })
    }
}
