//! Comparing: what both answered after each operation, and which differences are the peer's own.
//!
//! Five kinds of differences are tolerated, and counted:
//!
//! - [`STREAMS`], [`DEFERRED`]: when events of several streams are found to have passed in one call, or several blocks
//!   waited for the end of a scope, the peer frees blocks, or records their events, in the order of a hash map. Peaks
//!   and sums of `inactive_split` follow that order, and so does the block of several merged ones whose past size a
//!   snapshot shows. Excused only after such a call, and a sum only in it: its distance stays. A script ends where only
//!   some of the events recorded in such an order are to be waited for.
//! - [`STALE`]: the peer notes uses recorded in a scope by the host address of a block, and does not forget them with
//!   the block; a later one there can lose an event. Excused only when our answers agree to the end, or up to a later
//!   difference, once that one use is taken as recorded in a scope.
//! - [`COUNTED`]: the peer counts expandable segments of a private pool as often as they grow; once such a pool, used
//!   no more, is to be given back, the peer's assertions end the script.
//! - [`WAITED`]: the peer waits for events before it reports out of memory, but does not search the blocks that become
//!   free inside segments that stay (pytorch#189504). Tolerated if the peer is out of memory and we serve the request
//!   after waiting, from memory that both hold. The script ends there, since both hold different blocks from then on.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::caching::tests::differential::ours::{Leaf, Ours, Use, figure_at};
use crate::caching::tests::differential::peer::{Peer, Reply};
use crate::caching::tests::differential::script::{Op, Pools, Script, generate};

const STREAMS: &str = "order of streams";
const DEFERRED: &str = "order of deferred blocks";
const STALE: &str = "stale use of a scope";
const COUNTED: &str = "expandable segments of a private pool";
const WAITED: &str = "block that events were waited for";

/// Where two allocators disagree first.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The operation.
    pub(crate) at: usize,
    pub(crate) kind: Kind,
    pub(crate) what: String,
}

/// What differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Outcome,
    Used,
    Figures,
    Layout,
    /// Our books do not balance.
    Books,
    /// One of the two stopped working.
    Died,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {:?}: {}", self.at + 1, self.kind, self.what)
    }
}

/// One script, compared.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) difference: Option<Difference>,
    /// How many operations were compared.
    pub(crate) operations: usize,
    pub(crate) excused: BTreeMap<&'static str, usize>,
    /// The figures at the end.
    pub(crate) figures: Vec<i64>,
    suspects: Vec<Use>,
}

/// Runs a script on both.
pub(crate) fn judge(peer: &Peer, script: &Script) -> std::io::Result<Verdict> {
    let replies = peer.run(script)?;
    let mut overlooked = BTreeSet::new();
    let mut verdict = compare(script, &replies, &overlooked);
    while let Some(difference) = &verdict.difference {
        let suspects = verdict.suspects.iter().rev().filter(|suspect| !overlooked.contains(*suspect));
        let better = suspects.into_iter().find_map(|suspect| {
            let tried: BTreeSet<Use> = overlooked.iter().chain([suspect]).copied().collect();
            let verdict = compare(script, &replies, &tried);
            verdict.difference.as_ref().is_none_or(|later| later.at > difference.at).then_some((tried, verdict))
        });
        let Some((tried, found)) = better else { break };
        (overlooked, verdict) = (tried, found);
    }
    if !overlooked.is_empty() {
        verdict.excused.insert(STALE, overlooked.len());
    }
    Ok(verdict)
}

/// Runs our side beside what the peer answered.
fn compare(script: &Script, replies: &[Reply], overlooked: &BTreeSet<Use>) -> Verdict {
    let at = Cell::new(0);
    let run = || Comparison::new(script).run(script, replies, overlooked, &at);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = format!("we panicked: {}", message(&*panic));
        let difference = Some(Difference { at: at.get(), kind: Kind::Died, what });
        Verdict { difference, operations: at.get(), ..Verdict::default() }
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

struct Comparison {
    ours: Ours,
    pools: Pools,
    order: Order,
    verdict: Verdict,
}

impl Comparison {
    fn new(script: &Script) -> Self {
        let ours = Ours::new(script);
        Self { ours, pools: Pools::default(), order: Order::default(), verdict: Verdict::default() }
    }

    fn run(mut self, script: &Script, replies: &[Reply], overlooked: &BTreeSet<Use>, at: &Cell<usize>) -> Verdict {
        let expands = script.expands();
        for (index, op) in script.ops.iter().enumerate() {
            at.set(index);
            let Some(reply) = replies.get(index) else {
                return self.end(index, Err((Kind::Died, "the peer ended".to_owned())));
            };
            if matches!(op, Op::Close { .. }) && self.ours.driver.events().awaits_shuffled() {
                self.excuse(DEFERRED);
                return self.end(index, Ok(()));
            }
            let miscounted = expands && self.is_miscounted(op);
            if miscounted && !matches!(op, Op::Alloc { .. }) {
                self.excuse(COUNTED);
                return self.end(index, Ok(()));
            }
            self.pools.admit(op);
            let syncs = self.syncs();
            let outcome = self.ours.step(index, op, overlooked);
            if miscounted && self.syncs() > syncs {
                self.excuse(COUNTED);
                return self.end(index, Ok(()));
            }
            if self.syncs() > syncs && self.is_spared(op, outcome.as_deref(), reply) {
                self.excuse(WAITED);
                return self.end(index, Ok(()));
            }
            let result = self.check(op, outcome, reply);
            if result.is_err() {
                return self.end(index, result);
            }
        }
        self.end(script.ops.len(), Ok(()))
    }

    fn end(mut self, operations: usize, result: Result<(), (Kind, String)>) -> Verdict {
        self.verdict.difference = result.err().map(|(kind, what)| Difference { at: operations, kind, what });
        self.verdict.operations = operations;
        self.verdict.figures = self.ours.figures();
        self.verdict.suspects = self.ours.suspects;
        self.verdict
    }

    fn excuse(&mut self, kind: &'static str) {
        *self.verdict.excused.entry(kind).or_default() += 1;
    }

    fn check_layout(&mut self, theirs: &Vec<String>) -> Result<(), (Kind, String)> {
        let ours = self.ours.layout(self.pools.used());
        if ours == *theirs {
            return Ok(());
        }
        let alike = ours.iter().map(|line| without_past(line)).eq(theirs.iter().map(|line| without_past(line)));
        if alike && self.order.cause.is_some() {
            self.excuse_order();
            return Ok(());
        }
        let first = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
        first.map_or(Ok(()), |(ours, theirs)| differ(Kind::Layout, ours, theirs))?;
        differ(Kind::Layout, &ours, theirs)
    }

    fn excuse_order(&mut self) {
        self.order.cause.into_iter().for_each(|cause| *self.verdict.excused.entry(cause).or_default() += 1);
    }

    /// Whether an operation gives expandable segments of a private pool back, or may.
    fn is_miscounted(&self, op: &Op) -> bool {
        if let Op::Close { pool } = op {
            return self.ours.expanded_in_pool(1, Some(*pool));
        }
        matches!(op, Op::Empty | Op::Alloc { .. }) && self.ours.expanded_in_pool(0, None)
    }

    /// Whether we serve a request, for which the peer is out of memory, from memory that the peer holds as well.
    fn is_spared(&self, op: &Op, outcome: Option<&str>, reply: &Reply) -> bool {
        let is_served = outcome.is_some_and(|ours| ours.starts_with("ptr "));
        let ran_out = reply.outcome.iter().any(|theirs| theirs.starts_with("ERR CUDA out of memory."));
        let has_same = self.ours.driver.memory().used() == reply.used;
        matches!(op, Op::Alloc { .. }) && is_served && ran_out && has_same
    }

    fn syncs(&self) -> i64 {
        let figures = self.ours.figures();
        figures[figures.len() - 4]
    }

    fn check(&mut self, op: &Op, outcome: Option<String>, reply: &Reply) -> Result<(), (Kind, String)> {
        let outcome: Vec<String> = outcome.into_iter().collect();
        differ(Kind::Outcome, &outcome, &reply.outcome)?;
        differ(Kind::Used, &self.ours.driver.memory().used(), &reply.used)?;
        let figures = self.ours.figures();
        let deferred = self.ours.take_deferred(op) > 1;
        let observed = self.ours.driver.events().take_observed(deferred);
        let free = match (observed.streams > 1, deferred || observed.shuffled > 1) {
            (_, true) => Some(DEFERRED),
            (true, false) => Some(STREAMS),
            (false, false) => None,
        };
        self.order.cause = free.or(self.order.cause);
        if self.order.check(op, free.is_some(), &figures, &reply.figures).map_err(|what| (Kind::Figures, what))? {
            self.excuse_order();
        }
        if let Some(layout) = &reply.layout {
            self.check_layout(layout)?;
        }
        let books = self.ours.inconsistency();
        books.map_or(Ok(()), |what| Err((Kind::Books, what)))
    }
}

fn differ<T: PartialEq + fmt::Debug>(kind: Kind, ours: &T, theirs: &T) -> Result<(), (Kind, String)> {
    if ours == theirs { Ok(()) } else { Err((kind, format!("ours {ours:?}, the peer's {theirs:?}"))) }
}

/// A line of the layout without the past sizes of free blocks.
fn without_past(line: &str) -> String {
    let blocks = line.split(' ').map(|word| match (word.strip_suffix(",I]"), word.split_once(',')) {
        (Some(_), Some((size, _))) => format!("{size},I]"),
        _ => word.to_owned(),
    });
    blocks.collect::<Vec<_>>().join(" ")
}

/// What the order of a hash map has done to the peer's answers so far.
#[derive(Default)]
struct Order {
    /// The peer's sums of `inactive_split` less ours, by place.
    distance: BTreeMap<usize, i64>,
    /// Whether peaks may differ.
    peaks: bool,
    /// The last reason why blocks were freed in such an order; from the first on past sizes may differ.
    cause: Option<&'static str>,
}

impl Order {
    /// Compares figures after an operation, in which blocks were freed in an order that is `free`. Whether something
    /// new was excused, or what differs.
    fn check(&mut self, op: &Op, free: bool, ours: &[i64], theirs: &[i64]) -> Result<bool, String> {
        self.peaks = free || (self.peaks && *op != Op::ResetPeak);
        if *op == Op::ResetAccumulated {
            self.distance.clear();
        }
        if ours == theirs && self.distance.is_empty() {
            return Ok(false);
        }
        if ours.len() != theirs.len() {
            return Err(format!("{} figures, the peer has {}", ours.len(), theirs.len()));
        }
        let (mut excused, mut differ) = (false, Vec::new());
        for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let distance = theirs - ours;
            if distance == self.distance.get(&place).copied().unwrap_or(0) {
                continue;
            }
            let (name, leaf) = figure_at(place);
            let ordered = name.starts_with("inactive_split");
            match leaf {
                Leaf::Peak if ordered && self.peaks => excused |= free,
                Leaf::Allocated | Leaf::Freed if ordered && free => {
                    self.distance.insert(place, distance);
                    excused = true;
                }
                Leaf::Current | Leaf::Peak | Leaf::Allocated | Leaf::Freed | Leaf::Count => {
                    differ.push(format!("{name}: ours {ours}, the peer's {theirs}"))
                }
            }
        }
        if differ.is_empty() { Ok(excused) } else { Err(differ.join("; ")) }
    }
}

/// A shorter script that still shows a difference of the same kind, found by leaving operations out.
pub(crate) fn shrink(peer: &Peer, script: &Script, difference: &Difference) -> (Script, Difference) {
    let (mut best, mut shown) = (script.clone(), difference.clone());
    best.ops.truncate(difference.at + 1);
    let mut chunk = best.ops.len().div_ceil(2);
    loop {
        let (mut start, mut shortened) = (0, false);
        while start < best.ops.len() {
            let mut shorter = best.clone();
            shorter.ops.drain(start..(start + chunk).min(best.ops.len()));
            match shows(peer, &mut shorter, shown.kind) {
                Some(difference) => (best, shown, shortened) = (shorter, difference, true),
                None => start += chunk,
            }
        }
        if chunk == 1 && !shortened {
            return (best, shown);
        }
        chunk = chunk.div_ceil(2).max(1);
    }
}

/// The difference that a script shows, which is cut off after it.
fn shows(peer: &Peer, script: &mut Script, kind: Kind) -> Option<Difference> {
    let valid = script.is_valid() && !script.ops.is_empty();
    let verdict = valid.then(|| judge(peer, script).ok()).flatten()?;
    let difference = verdict.difference.filter(|difference| difference.kind == kind)?;
    script.ops.truncate(difference.at + 1);
    Some(difference)
}

#[test]
fn only_sums_and_peaks_of_parts_follow_an_order_that_is_free() {
    let place_of = |name: &str| (0..122).find(|place| figure_at(*place).0 == name).unwrap();
    let mut ours = vec![0; 122];
    let mut theirs = ours.clone();
    theirs[place_of("inactive_split.all.allocated")] = 1;
    theirs[place_of("inactive_split.all.freed")] = 1;
    let mut order = Order::default();
    assert!(order.check(&Op::Empty, false, &ours, &theirs).is_err(), "no order was free");
    assert_eq!(order.check(&Op::Empty, true, &ours, &theirs), Ok(true));
    assert_eq!(order.check(&Op::Empty, false, &ours, &theirs), Ok(false), "the distance stays");
    ours[place_of("inactive_split.all.freed")] = 1;
    assert!(order.check(&Op::Empty, false, &ours, &theirs).is_err(), "the distance changes");
    let current = place_of("inactive_split.all.current");
    (ours, theirs) = (vec![0; 122], vec![0; 122]);
    theirs[current] = 1;
    assert!(Order::default().check(&Op::Empty, true, &ours, &theirs).is_err(), "what is held is no matter of order");
    assert_eq!(figure_at(121).0, "max_split_size");
}

#[test]
fn only_past_sizes_are_left_out_of_a_layout() {
    assert_eq!(
        without_past("seg 1 blocks: [512,7,A] [1024,9,P] [2048,3,I]"),
        "seg 1 blocks: [512,7,A] [1024,9,P] [2048,I]"
    );
}

#[test]
fn only_a_request_that_the_peer_ran_out_for_is_spared() {
    let script = generate(1, 0).0;
    let comparison = Comparison::new(&script);
    let used = comparison.ours.driver.memory().used();
    let of = |outcome: &str, used| Reply { outcome: vec![outcome.to_owned()], used, ..Reply::default() };
    let (alloc, ran_out) = (Op::Alloc { id: 1, bytes: 1, stream: 0 }, "ERR CUDA out of memory. Tried to allocate");
    let is_spared = |op, ours, reply| comparison.is_spared(op, Some(ours), &reply);
    assert!(is_spared(&alloc, "ptr 1", of(ran_out, used)));
    assert!(!is_spared(&Op::Empty, "ptr 1", of(ran_out, used)));
    assert!(!is_spared(&alloc, ran_out, of(ran_out, used)));
    assert!(!is_spared(&alloc, "ptr 1", of("ptr 2", used)));
    assert!(!is_spared(&alloc, "ptr 1", of(ran_out, used + 1)), "memory that the peer does not hold");
}
