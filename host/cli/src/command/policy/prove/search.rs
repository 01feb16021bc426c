//! Searches for a call that the new policies let go further: all calls of the sample if they are few enough, and else
//! as many as that, chosen at random.

use portcullis::call::CallView;

use super::judge::{Judge, PolicyJudgement};
use super::sample::{Choice, Space};

/// The seed of the random choice. It is fixed, so that the same policies get the same answer.
const SEED: u64 = 0x706f_7274_6375_6c6c;

/// The result of a search.
pub(super) struct Searched {
    /// The number of calls that were judged.
    pub(super) judged: usize,
    /// The number of calls in the sample.
    pub(super) sample: usize,
    /// True if the search judges every call of the sample, unless it finds one before, and the schemas declare no more
    /// than the sample has.
    pub(super) is_exhaustive: bool,
    pub(super) wider: Option<Wider>,
}

/// A call that goes further, with the judgements of the old and the new policies.
pub(super) struct Wider {
    pub(super) view: CallView,
    pub(super) old: PolicyJudgement,
    pub(super) new: PolicyJudgement,
}

/// Searches the spaces, and judges at most about `most` calls.
pub(super) async fn search(judge: &Judge, spaces: &[Space], most: usize, progress: impl Fn(usize)) -> Searched {
    let sample = spaces.iter().map(Space::size).fold(0, usize::saturating_add);
    let is_exhaustive = sample <= most && !spaces.iter().any(Space::is_cut);
    let mut found = Searched { judged: 0, sample, is_exhaustive, wider: None };
    let mut random = Random(SEED);
    // Small spaces first: the calls that they do not need are left for the others.
    let mut ordered: Vec<&Space> = spaces.iter().collect();
    ordered.sort_by_key(|space| space.size());
    for (at, space) in ordered.iter().enumerate() {
        let share = most.saturating_sub(found.judged) / (ordered.len() - at);
        let is_whole = space.size() <= share;
        let sizes = space.sizes();
        for position in 0..share.min(space.size()) {
            let choice = if is_whole { space.choice(position) } else { random.choice(&sizes) };
            found.judged += 1;
            progress(found.judged);
            let Some(view) = space.view(&choice) else { continue };
            if let Some((old, new)) = judge.wider(&view).await {
                let as_found = Wider { view, old, new };
                found.wider = Some(simplified(judge, space, choice).await.unwrap_or(as_found));
                return found;
            }
        }
    }
    found
}

/// Returns the call with as few arguments, and as ordinary a caller, as it takes.
async fn simplified(judge: &Judge, space: &Space, mut choice: Choice) -> Option<Wider> {
    for part in 0..choice.len() {
        let mut simpler = choice.clone();
        if let Some(chosen) = simpler.get_mut(part) {
            *chosen = 0;
        }
        if judge.wider(&space.view(&simpler)?).await.is_some() {
            choice = simpler;
        }
    }
    let view = space.view(&choice)?;
    let (old, new) = judge.wider(&view).await?;
    Some(Wider { view, old, new })
}

/// The random numbers of SplitMix64.
struct Random(u64);

impl Random {
    fn choice(&mut self, sizes: &[usize]) -> Choice {
        sizes.iter().map(|size| self.below(*size)).collect()
    }

    /// Returns a number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap_or_default() % limit.max(1)
    }
}
