//! Groups: sources that offer the same tools under one name and stand in for each other.

use std::collections::BTreeMap;

use portcullis_core::name::SourceName;

use super::build::ProblemCollector;
use super::error::{ConfigError, UnlocatedProblem, suggest};
use super::raw::{Located, RawConfig, RawGroup};
use super::{Config, SourceConfig};

/// The most members of one group. A call may try each of them once, and waits for each that does not answer.
const MAX_MEMBERS: usize = 16;

/// The membership of a source in a group.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Membership {
    /// The name of the group, which is not the name of any source.
    pub group: SourceName,
    /// The position in the group's list: of members with the same priority, the one with the lower position is called
    /// first.
    pub place: usize,
}

impl SourceConfig {
    /// Returns the name under which the source's tools are offered.
    #[must_use]
    pub fn offered_as(&self) -> &SourceName {
        self.group.as_ref().map_or(&self.name, |member| &member.group)
    }

    /// Returns the names by which a profile can select the source: its own, and that of its group.
    pub fn names(&self) -> impl Iterator<Item = &SourceName> {
        std::iter::once(&self.name).chain(self.group.as_ref().map(|member| &member.group))
    }

    /// Returns the key that orders the members of a group while all of them work.
    pub fn turn(&self) -> impl Ord + use<> {
        (std::cmp::Reverse(self.priority), self.group.as_ref().map_or(0, |member| member.place))
    }
}

impl Config {
    /// Returns the groups with their members, in the order in which they are called while all of them work.
    #[doc(hidden)]
    #[must_use]
    pub fn groups(&self) -> BTreeMap<&SourceName, Vec<&SourceConfig>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for source in self.sources.values() {
            if let Some(member) = &source.group {
                groups.entry(&member.group).or_default().push(source);
            }
        }
        groups.values_mut().for_each(|members| members.sort_by_key(|source| source.turn()));
        groups
    }

    /// Lets other sources stand in for `primary`, in the order given, whatever their priorities are: this is a group
    /// that has the name of the first source. The tools of all are offered as `PRIMARY__tool`, and none of the sources
    /// is required any more.
    ///
    /// # Errors
    /// If a source does not exist, is named twice or is already in a group, or if there are more than 16.
    #[doc(hidden)]
    pub fn fall_back(&mut self, primary: &SourceName, fallbacks: &[SourceName]) -> Result<(), ConfigError> {
        let refuse = |message: String, help: &str| Err(ConfigError::without_place(message, help));
        let members: Vec<_> = std::iter::once(primary).chain(fallbacks).collect();
        if members.len() > MAX_MEMBERS {
            return refuse(format!("{} sources for one tool", members.len()), "16 are possible, including the first");
        }
        for (place, name) in members.iter().enumerate() {
            let known: Vec<_> = self.sources.keys().map(SourceName::as_str).collect();
            let Some(source) = self.sources.get(*name) else {
                let help = suggest(name.as_str(), &known, "configured sources");
                return refuse(format!("no source is called {:?}", name.as_str()), &help);
            };
            if members.iter().take(place).any(|other| other == name) {
                return refuse(format!("source `{name}` is named twice"), "name it once");
            }
            if let Some(member) = &source.group {
                let message = format!("source `{name}` is in group `{}`, which has fallbacks of its own", member.group);
                return refuse(message, "call the tool of the group, or take the source out of it");
            }
        }
        let priority = self.sources.get(primary).map_or(0, |source| source.priority);
        for (place, name) in members.into_iter().enumerate() {
            if let Some(source) = self.sources.get_mut(name) {
                let member = Membership { group: primary.clone(), place };
                *source = SourceConfig { group: Some(member), required: false, priority, ..source.clone() };
            }
        }
        Ok(())
    }
}

/// Makes the sources that groups name members of those groups.
pub(super) fn build(
    raw: &RawConfig,
    sources: &mut BTreeMap<SourceName, SourceConfig>,
    problems: &mut ProblemCollector,
) {
    for (at, group) in &raw.groups {
        let name = at.parse::<SourceName>().map_err(|error| {
            UnlocatedProblem::new(at.span(), format!("group {error}")).help("rename the group, such as to \"search\"")
        });
        let Some(name) = problems.keep(name) else { continue };
        if sources.contains_key(&name) {
            let message = format!("group {:?} has the name of a source", at.as_str());
            problems.0.push(
                UnlocatedProblem::new(at.span(), message).help("rename one of them: tools are called `NAME__tool`"),
            );
            continue;
        }
        let members = members(at, group, sources, problems);
        for (place, (member, span)) in members.into_iter().enumerate() {
            let raw = raw.sources.iter().find(|(at, _)| at.as_str() == member.as_str()).map(|(_, raw)| raw);
            let required = raw.and_then(|raw| raw.required) == Some(true);
            let Some(source) = sources.get_mut(&member) else { continue };
            let refuse = |message: String, help: &str| UnlocatedProblem::new(span.clone(), message).help(help);
            if let Some(other) = &source.group {
                let message = format!("source `{member}` is in group `{}` already", other.group);
                problems.0.push(refuse(message, "a source is in one group: remove it from the other"));
                continue;
            }
            if required {
                let message = format!("source `{member}` is `required`, and a member of a group never is");
                problems.0.push(refuse(message, "remove `required` from the source, or the source from the group"));
            }
            if let Some(names) = raw.and_then(|raw| raw.names.as_ref()) {
                let message = format!("source `{member}` has `names`, and its tools are named after group `{name}`");
                problems.0.push(UnlocatedProblem::new(names.span(), message).help("remove `names`"));
            }
            source.group = Some(Membership { group: name.clone(), place });
            source.required = false;
        }
    }
}

type Spanned = (SourceName, std::ops::Range<usize>);

fn members(
    at: &Located<String>,
    group: &RawGroup,
    sources: &BTreeMap<SourceName, SourceConfig>,
    problems: &mut ProblemCollector,
) -> Vec<Spanned> {
    let mut members: Vec<Spanned> = Vec::new();
    let mut add = |source: &SourceConfig, at: &Located<String>| {
        if !members.iter().any(|(name, _)| *name == source.name) {
            members.push((source.name.clone(), at.span()));
        }
    };
    let known: Vec<_> = sources.keys().map(SourceName::as_str).collect();
    for name in &group.sources {
        match sources.values().find(|source| source.name.as_str() == name.as_str()) {
            Some(source) => add(source, name),
            None => {
                let help = suggest(name, &known, "configured sources");
                problems.0.push(
                    UnlocatedProblem::new(name.span(), format!("{:?} is not a source", name.as_str())).help(help),
                );
            }
        }
    }
    for tag in &group.tags {
        let tagged: Vec<_> = sources.values().filter(|source| source.tags.contains(&**tag)).collect();
        if tagged.is_empty() {
            let problem = UnlocatedProblem::new(tag.span(), format!("no source has the tag {:?}", tag.as_str()));
            problems.0.push(problem.help("tag the members: `tags = [\"…\"]` in each source"));
        }
        tagged.into_iter().for_each(|source| add(source, tag));
    }
    if group.sources.is_empty() && group.tags.is_empty() {
        let problem = UnlocatedProblem::new(at.span(), format!("group {:?} has no members", at.as_str()));
        problems.0.push(problem.help("name them: `sources = [\"…\"]`, or `tags = [\"…\"]`"));
    }
    if members.len() > MAX_MEMBERS {
        let problem =
            UnlocatedProblem::new(at.span(), format!("group {:?} has {} members", at.as_str(), members.len()));
        problems.0.push(problem.help(format!("{MAX_MEMBERS} are possible")));
    }
    members
}
