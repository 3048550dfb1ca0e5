//! The plan of a stream: it learns, is computed by a thread of its own, is followed, and is dropped.
//!
//! ```text
//! Learning ──two equal periods──► Following (computed, then adopted) ──mismatches, or the arena is needed──► Learning
//!    ▲                                                                                                        or
//!    └────────────────────────────── after a while ◄────────────────────────────────────────────────────── Resting
//! ```
//!
//! While a plan is followed a cursor stands at the request that is expected next. A request of that size gets its place,
//! if it has one and that is free. Any other request is served by the cache. If it is one of the next requests the cursor
//! goes there, else it stays; the beginning of a step puts it at the front.
//!
//! **Invariants:** places are handed out only of an adopted arena, and only when they are free, whatever came before. The
//! cursor says which place is tried, never that it is free.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use crate::caching::block::{Index, NONE};
use crate::caching::plan::places::{Pieces, Places};
use crate::caching::plan::record::{Period, Recorder};
use crate::caching::plan::solve::{Holes, Layout, Lifetime, fill, loads, solve, solve_with_holes};
use crate::sync::Mutex;
use crate::sync::lock;

/// How many requests that were left out a stream may have before the cursor follows.
const AHEAD: usize = 8;
/// Requests by which the cursor is found anew.
const STRAYS: usize = 8;
/// Plans that a stream loses before it rests between two of them.
const PATIENCE: u32 = 3;
/// Most requests that it rests for.
const LONGEST_REST: u64 = 1 << 20;
/// Periods after which the cache is emptied: what the plan replaced is given back then.
const TRIMS: u32 = 2;

/// Times that a layout is computed for holes that were found.
const FILLINGS: u32 = 3;

/// What the plans of a device's streams have done.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let stats = c10_core::Runtime::current().memory().plan_stats(0)?;
/// assert_eq!(stats, c10_core::PlanStats::default(), "plans are off");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PlanStats {
    /// Plans that were adopted.
    pub adopted: u64,
    /// Plans that were given up again.
    pub dropped: u64,
    /// Requests that a plan placed.
    pub planned_requests: u64,
    /// Requests that the cache served though a plan was adopted: they were not expected, their place was still in use, or they
    /// outlive the period.
    pub other_requests: u64,
    /// Bytes of the arenas that are adopted now.
    pub arena_bytes: u64,
    /// Most bytes of their requests that are allocated at one time, in each period: what the arenas need at least.
    pub load_bytes: u64,
}

impl PlanStats {
    /// The figures of several streams together.
    pub(crate) fn add(&mut self, other: &Self) {
        self.adopted += other.adopted;
        self.dropped += other.dropped;
        self.planned_requests += other.planned_requests;
        self.other_requests += other.other_requests;
        self.arena_bytes += other.arena_bytes;
        self.load_bytes += other.load_bytes;
    }
}

/// A layout that is computed.
#[derive(Debug)]
pub(crate) struct Job {
    period: Vec<Lifetime>,
    /// The turn at which the least is held: an arena is taken there.
    quiet: usize,
    layout: OnceLock<Layout>,
    /// The same with holes, as they were found last, and how often they were others.
    filling: Mutex<(Option<Arc<Filling>>, u32)>,
}

/// A layout with holes, which is computed.
#[derive(Debug)]
pub(crate) struct Filling {
    holes: Holes,
    layout: OnceLock<Layout>,
}

/// What a job says of holes.
#[derive(Debug)]
pub(crate) enum Filled {
    /// The best layout.
    By(Layout),
    /// One with these holes is to be computed.
    Wanted(Arc<Filling>),
}

impl Job {
    fn new(period: Vec<Lifetime>, quiet: usize) -> Self {
        Self { period, quiet, layout: OnceLock::new(), filling: Mutex::default() }
    }

    /// Computes it, which may take a second.
    pub(crate) fn run(&self) {
        let _ = self.layout.set(solve(&self.period));
    }

    /// Computes a layout with holes, which may take as long.
    pub(crate) fn run_filling(&self, filling: &Filling) {
        if let Some(known) = self.layout.get() {
            let _ = filling.layout.set(solve_with_holes(&self.period, known, &filling.holes));
        }
    }

    /// Whether nothing is computed any more.
    pub(crate) fn is_done(&self) -> bool {
        let is_filled = |filling: &Arc<Filling>| filling.layout.get().is_some();
        self.layout.get().is_some() && lock(&self.filling).0.as_ref().is_none_or(is_filled)
    }

    /// Bytes of the layout without holes.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.get().map_or(0, |layout| layout.bytes)
    }

    /// The layout that uses holes, if that is known and needs fewer bytes. While something is held there are none where the
    /// arena is taken: what lies beside it will be gone, and the segment with it.
    pub(crate) fn fill(&self, holes: &Holes) -> Option<Filled> {
        let known = self.layout.get()?;
        if holes.end() == 0 || self.holds_at_quiet() {
            return Some(Filled::By(known.clone()));
        }
        let (filling, times) = &mut *lock(&self.filling);
        if let Some(filled) = filling.as_ref().filter(|filling| filling.holes == *holes) {
            let filled = filled.layout.get().filter(|layout| layout.bytes < known.bytes);
            return Some(Filled::By(filled.unwrap_or(known).clone()));
        }
        if *times >= FILLINGS {
            // They are others each time: a layout that is found at once has to do.
            let filled = fill(&self.period, known, holes);
            return Some(Filled::By(if filled.bytes < known.bytes { filled } else { known.clone() }));
        }
        *times += 1;
        let wanted = Arc::new(Filling { holes: holes.clone(), layout: OnceLock::new() });
        *filling = Some(Arc::clone(&wanted));
        Some(Filled::Wanted(wanted))
    }

    /// No layout with holes is computed, so that there is none to wait for.
    pub(crate) fn leave_holes(&self, filling: &Filling) {
        if let Some(known) = self.layout.get() {
            let _ = filling.layout.set(known.clone());
        }
    }

    /// Whether a request that has a place holds it before and after the quiet turn.
    fn holds_at_quiet(&self) -> bool {
        let count = self.period.len();
        let since = |turn: usize| (turn + count - self.quiet) % count;
        (0..count).any(|turn| since(turn) + self.period[turn].turns as usize > count)
    }

    /// Which of the holes have a place of a layout.
    pub(crate) fn used(&self, layout: &Layout, holes: &Holes) -> BTreeSet<usize> {
        let places = self.period.iter().zip(&layout.offsets).filter(|(lifetime, _)| lifetime.turns > 0);
        places.filter_map(|(_, offset)| holes.find(*offset)).map(|(hole, _)| hole).collect()
    }
}

/// What a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A place, which is taken: its block.
    Place(Index),
    /// The cache serves it.
    Cache,
    /// The same, and what it got is to be noted.
    Learn,
    /// Something is to be done first, without the lock; then the request is made again.
    First(Turn),
}

/// What is to be done between two requests.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// A layout is to be computed, by another thread.
    Compute(Arc<Job>),
    /// The layout is there: an arena is to be taken.
    Adopt,
    /// What the cache holds is needed no more.
    Trim,
    /// The plan is of no use any more.
    Drop,
}

/// A request of the period.
#[derive(Clone, Copy, Debug)]
struct Expected {
    size: u64,
    /// The block that stands for its place, if it has one and the arena is there.
    block: Index,
    place: Pieces,
}

#[derive(Debug)]
enum Phase {
    Learning(Recorder),
    Following(Follower),
    /// For so many requests nothing is recorded.
    Resting(u64),
}

/// A plan that is computed or followed.
#[derive(Debug)]
struct Follower {
    expected: Box<[Expected]>,
    /// The request that is expected next.
    cursor: usize,
    places: Places,
    /// The blocks that stand for the parts of the arena; none before there is one.
    arena: Vec<Index>,
    job: Arc<Job>,
    is_marked: bool,
    /// An arena may be taken in this period.
    may_adopt: bool,
    /// Requests of this period that were not expected, or whose place was in use.
    misses: usize,
    /// Periods in a row with many of them.
    bad_periods: u32,
    /// The last requests that were not expected.
    strays: Vec<u64>,
    trims: u32,
}

/// The plan of a stream.
#[derive(Debug)]
pub(crate) struct StreamPlan {
    phase: Phase,
    /// Steps that were marked, as far as this stream knows.
    marks: u64,
    stats: PlanStats,
}

impl StreamPlan {
    /// One that begins to learn; `marks` steps were marked before.
    pub(crate) fn new(marks: u64) -> Self {
        Self { phase: Phase::Learning(Recorder::new(0)), marks, stats: PlanStats::default() }
    }

    pub(crate) fn stats(&self) -> PlanStats {
        self.stats
    }

    /// What a request of a rounded size is answered, when so many steps were marked.
    #[inline]
    pub(crate) fn next(&mut self, size: u64, marks: u64) -> Answer {
        if let Phase::Following(follower) = &mut self.phase
            && marks == self.marks
            && let Some(expected) = follower.expected.get(follower.cursor)
            && expected.size == size
            && expected.block != NONE
            && follower.places.take(expected.place)
        {
            follower.cursor += 1;
            self.stats.planned_requests += 1;
            return Answer::Place(expected.block);
        }
        self.next_slowly(size, marks)
    }

    #[cold]
    fn next_slowly(&mut self, size: u64, marks: u64) -> Answer {
        let is_new_step = marks != self.marks;
        self.marks = marks;
        match &mut self.phase {
            Phase::Resting(left) => {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.phase = Phase::Learning(Recorder::new(0));
                }
                Answer::Cache
            }
            Phase::Learning(recorder) => {
                if is_new_step {
                    recorder.mark();
                }
                if let Some(period) = recorder.period() {
                    let follower = Follower::new(period);
                    let job = Arc::clone(&follower.job);
                    self.phase = Phase::Following(follower);
                    return Answer::First(Turn::Compute(job));
                }
                if recorder.is_full() {
                    self.phase = Phase::Resting(LONGEST_REST);
                    return Answer::Cache;
                }
                Answer::Learn
            }
            Phase::Following(follower) => {
                let answer = match follower.begin_period(is_new_step) {
                    Some(turn) => Answer::First(turn),
                    None => follower.find(size),
                };
                let counted = !follower.arena.is_empty();
                match answer {
                    Answer::Place(_) => self.stats.planned_requests += u64::from(counted),
                    Answer::Cache => self.stats.other_requests += u64::from(counted),
                    Answer::Learn | Answer::First(_) => {}
                }
                answer
            }
        }
    }

    /// Whether what is given back is to be noted.
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        matches!(self.phase, Phase::Learning(_))
    }

    /// Notes what a request got, if the plan learns.
    pub(crate) fn allocated(&mut self, size: u64, address: u64) {
        if let Phase::Learning(recorder) = &mut self.phase {
            recorder.allocated(size, address);
        }
    }

    /// Notes what was given back, if the plan learns.
    pub(crate) fn freed(&mut self, address: u64, is_shared: bool) {
        if let Phase::Learning(recorder) = &mut self.phase {
            recorder.freed(address, is_shared);
        }
    }

    /// Whether a thread computes a layout.
    #[cfg(test)]
    pub(crate) fn is_computing(&self) -> bool {
        matches!(&self.phase, Phase::Following(Follower { job, arena, .. }) if arena.is_empty() && !job.is_done())
    }

    /// What was computed for an arena that is to be taken: the layout is there and nothing was adopted.
    pub(crate) fn wanted(&self) -> Option<Arc<Job>> {
        let Phase::Following(Follower { job, arena, .. }) = &self.phase else { return None };
        let has_places = job.layout.get().is_some_and(|layout| layout.bytes > 0);
        (arena.is_empty() && has_places).then(|| Arc::clone(job))
    }

    /// Whether the plan still wants what was computed.
    pub(crate) fn wants(&self, wanted: &Arc<Job>) -> bool {
        self.wanted().is_some_and(|job| Arc::ptr_eq(&job, wanted))
    }

    /// Takes an arena of so many bytes over: `block` makes the block that stands for a place, by its offset, its bytes and its
    /// number.
    pub(crate) fn adopt(
        &mut self,
        arena: Vec<Index>,
        bytes: u64,
        layout: &Layout,
        mut block: impl FnMut(u64, u64, u32) -> Index,
    ) {
        let Phase::Following(follower) = &mut self.phase else { return };
        let (places, pieces) = Places::new(&follower.job.period, layout);
        for (number, expected) in (0..).zip(&mut follower.expected) {
            let at = number as usize;
            if follower.job.period[at].turns > 0 {
                expected.block = block(layout.offsets[at], expected.size, number);
                expected.place = pieces[at];
            }
        }
        (follower.places, follower.arena, follower.trims) = (places, arena, TRIMS);
        self.stats.adopted += 1;
        self.stats.arena_bytes = bytes;
        self.stats.load_bytes = loads(&follower.job.period).into_iter().max().unwrap_or(0);
    }

    /// The blocks of the arena; none if there is none.
    pub(crate) fn arena(&self) -> &[Index] {
        let Phase::Following(follower) = &self.phase else { return &[] };
        &follower.arena
    }

    /// Whether no place is taken.
    pub(crate) fn is_idle(&self) -> bool {
        let Phase::Following(follower) = &self.phase else { return true };
        follower.places.taken() == 0
    }

    /// The blocks that stand for places.
    pub(crate) fn blocks(&self) -> Vec<Index> {
        let Phase::Following(follower) = &self.phase else { return Vec::new() };
        follower.expected.iter().map(|expected| expected.block).filter(|block| *block != NONE).collect()
    }

    /// What is handed out at a place was given back.
    #[inline]
    pub(crate) fn give_back(&mut self, number: u32) {
        if let Phase::Following(follower) = &mut self.phase {
            follower.places.give_back(follower.expected[number as usize].place);
        }
    }

    /// Whether the places with these numbers are the ones that are taken.
    pub(crate) fn has_taken(&self, numbers: impl Iterator<Item = u32>) -> bool {
        let Phase::Following(follower) = &self.phase else { return numbers.count() == 0 };
        follower.places.are(numbers.map(|number| follower.expected[number as usize].place))
    }

    /// Gives the plan up, whose arena is gone, and learns anew, or rests for a while if that has come to nothing before.
    pub(crate) fn drop_plan(&mut self) {
        let Phase::Following(follower) = &self.phase else { return };
        let (length, is_marked) = (follower.expected.len(), follower.is_marked);
        self.stats.dropped += u64::from(!follower.arena.is_empty());
        (self.stats.arena_bytes, self.stats.load_bytes) = (0, 0);
        let lost = u32::try_from(self.stats.dropped).unwrap_or(u32::MAX);
        let rest = (length as u64) << lost.saturating_sub(PATIENCE).min(16);
        self.phase = match lost > PATIENCE {
            true => Phase::Resting(rest.min(LONGEST_REST)),
            // What was found by the sizes may have been a part of the real period.
            false => Phase::Learning(Recorder::new(if is_marked { 0 } else { length + 1 })),
        };
    }

    /// The plan cannot be had: there is no memory for it, or no thread.
    pub(crate) fn refuse(&mut self) {
        self.phase = Phase::Resting(LONGEST_REST);
    }
}

/// The turn before which the least is held.
fn quiet(requests: &[Lifetime]) -> usize {
    let held = loads(requests).into_iter().zip(requests).map(|(load, request)| match request.turns {
        0 => load,
        _ => load - request.size,
    });
    held.enumerate().min_by_key(|(_, held)| *held).map_or(0, |(turn, _)| turn)
}

impl Follower {
    fn new(period: Period) -> Self {
        let Period { mut requests, is_marked } = period;
        let quiet = quiet(&requests);
        // A step begins where the program says, other periods where the least is held.
        let origin = if is_marked { 0 } else { quiet };
        requests.rotate_left(origin);
        let expected = |lifetime: &Lifetime| Expected { size: lifetime.size, block: NONE, place: Pieces::default() };
        Self {
            expected: requests.iter().map(expected).collect(),
            cursor: (requests.len() - origin) % requests.len(),
            places: Places::default(),
            arena: Vec::new(),
            job: Arc::new(Job::new(requests, quiet - origin)),
            is_marked,
            may_adopt: true,
            misses: 0,
            bad_periods: 0,
            strays: Vec::new(),
            trims: 0,
        }
    }

    /// What is to be done where a period begins.
    fn begin_period(&mut self, is_new_step: bool) -> Option<Turn> {
        let length = self.expected.len();
        if is_new_step && !self.is_marked || self.misses > length + 64 {
            return Some(Turn::Drop);
        }
        let begins = if self.is_marked { is_new_step } else { self.cursor == length };
        if begins {
            self.bad_periods = if self.misses * 4 > length { self.bad_periods + 1 } else { 0 };
            (self.cursor, self.misses, self.may_adopt) = (0, 0, true);
            self.strays.clear();
            if self.bad_periods >= 2 {
                return Some(Turn::Drop);
            }
        }
        if self.arena.is_empty() {
            let adopts = self.may_adopt && self.cursor == self.job.quiet && self.job.is_done();
            self.may_adopt &= !adopts;
            return adopts.then_some(Turn::Adopt);
        }
        let trims = begins && self.trims > 0;
        self.trims -= u32::from(trims);
        trims.then_some(Turn::Trim)
    }

    /// The answer to a request whose place is not at the cursor, or not free.
    fn find(&mut self, size: u64) -> Answer {
        let ahead = self.expected.get(self.cursor..).unwrap_or_default();
        let found = ahead.iter().take(AHEAD).position(|expected| expected.size == size);
        self.misses += found.unwrap_or(1).min(1);
        if let Some(skipped) = found {
            self.cursor += skipped;
            self.strays.clear();
        } else if !self.find_strays(size) {
            return Answer::Cache;
        }
        let expected = self.expected[self.cursor];
        self.cursor += 1;
        if expected.block == NONE {
            return Answer::Cache;
        }
        if self.places.take(expected.place) {
            return Answer::Place(expected.block);
        }
        self.misses += 1;
        Answer::Cache
    }

    /// Puts the cursor where the last requests are expected, if that is one place; whether it was.
    fn find_strays(&mut self, size: u64) -> bool {
        self.strays.push(size);
        if self.is_marked || self.strays.len() < STRAYS || self.expected.len() < STRAYS {
            return false;
        }
        let length = self.expected.len();
        let is_at = |end: &usize| {
            let behind = (0..STRAYS).rev().map(|back| self.expected[(end + length - back) % length].size);
            behind.eq(self.strays.iter().copied())
        };
        let mut ends = (0..length).filter(is_at);
        let (first, second) = (ends.next(), ends.next());
        self.strays.remove(0);
        let Some(end) = first.filter(|_| second.is_none()) else { return false };
        self.cursor = end;
        self.strays.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 4] = [512, 1024, 1536, 2048];

    /// A plan of four requests, each of which lasts until the next but one, and its blocks, which are 10, 11, …
    fn adopted(is_marked: bool) -> StreamPlan {
        let requests = SIZES.map(|size| Lifetime { size, turns: 2 }).to_vec();
        let follower = Follower::new(Period { requests, is_marked });
        follower.job.run();
        let layout = follower.job.layout.get().unwrap().clone();
        let mut plan = StreamPlan { phase: Phase::Following(follower), ..StreamPlan::new(0) };
        plan.adopt(vec![9], 4096, &layout, |_, _, number| 10 + number);
        plan
    }

    fn ask(plan: &mut StreamPlan, size: u64, marks: u64) -> Option<Index> {
        loop {
            match plan.next(size, marks) {
                Answer::Place(block) => return Some(block),
                Answer::Cache | Answer::Learn => return None,
                Answer::First(turn) => assert!(matches!(turn, Turn::Trim), "{turn:?}"),
            }
        }
    }

    #[test]
    fn each_request_gets_its_place_if_that_is_free() {
        let mut plan = adopted(true);
        assert_eq!(SIZES.map(|size| ask(&mut plan, size, 1)), [Some(10), Some(11), None, None], "in use still");
        plan.give_back(0);
        plan.give_back(1);
        assert!(plan.is_idle());
        assert_eq!(ask(&mut plan, 512, 1), None, "the step has come to its end");
        assert_eq!([512, 1024].map(|size| ask(&mut plan, size, 2)), [Some(10), Some(11)]);
        plan.give_back(0);
        assert_eq!(ask(&mut plan, 1536, 2), Some(12));
        let stats = plan.stats();
        assert_eq!((stats.planned_requests, stats.other_requests), (5, 3));
    }

    #[test]
    fn requests_may_be_missing_or_too_many() {
        let mut plan = adopted(true);
        assert_eq!(ask(&mut plan, 9 * 512, 1), None);
        assert_eq!(ask(&mut plan, 1536, 1), Some(12), "two are left out");
        plan.give_back(2);
        assert_eq!(ask(&mut plan, 1536, 1), None);
        assert_eq!(ask(&mut plan, 2048, 1), Some(13));
    }

    #[test]
    fn a_plan_that_does_not_fit_is_dropped() {
        let mut plan = adopted(true);
        let dropped = (1..10).find(|marks| {
            let answers = [0; 3].map(|_| plan.next(7 * 512, *marks));
            answers.iter().any(|answer| matches!(answer, Answer::First(Turn::Drop)))
        });
        assert_eq!(dropped, Some(3), "after two bad steps");
        plan.drop_plan();
        assert!(plan.is_learning() && plan.blocks().is_empty() && plan.stats().dropped == 1);
        let mut plan = adopted(false);
        while !matches!(plan.next(7 * 512, 0), Answer::First(Turn::Drop)) {}
    }
}
