//! What a stream asked for and gave back, and whether it did so twice alike.
//!
//! Time is counted in requests: a request's *turn* is its number, and it lasts until the turn of the next request after
//! its free. A period ends where the program marks a step. Where it marks none, a period is a distance at which sizes
//! come again: candidates are found by a hash of the last [`WINDOW`] sizes, then every size is compared.
//!
//! **Invariants:** two periods count as equal only if all their sizes are, and, where they are found by the sizes, the
//! stream holds as much at the end of each as at its beginning. What is recorded is bounded by [`LONGEST`].

use std::collections::HashMap;

use crate::caching::plan::solve::Lifetime;

/// Most requests that are recorded, which is at least twice the longest period.
const LONGEST: usize = 1 << 18;
/// Sizes that a candidate is found by.
const WINDOW: usize = 16;
/// What the hash is multiplied by for each size.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// It is allocated still.
const LIVE: u32 = u32::MAX;

/// A request.
#[derive(Clone, Copy, Debug)]
struct Request {
    size: u64,
    /// The turn at which it had been given back, or [`LIVE`].
    end: u32,
    /// It cannot have a place in a plan: other streams use it.
    is_shared: bool,
    /// Bytes that the stream held before it.
    held: u64,
}

/// Two equal periods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    pub(crate) requests: Vec<Lifetime>,
    /// Its beginning is a step that the program marked.
    pub(crate) is_marked: bool,
}

/// A recorder.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    requests: Vec<Request>,
    /// The turn of what is allocated, by address.
    live: HashMap<u64, u32>,
    held: u64,
    /// The turns at which steps begin.
    marks: Vec<usize>,
    finder: Finder,
    /// No shorter period is looked for.
    least: usize,
}

/// Looks for sizes that come again.
#[derive(Debug, Default)]
struct Finder {
    hash: u64,
    /// The last turn that ended a window, by its hash.
    seen: HashMap<u64, u32>,
    /// The distance at which sizes came again lately, and for how many turns.
    distance: usize,
    turns: usize,
}

/// A turn or a count of them, as it is kept.
fn short(turn: usize) -> u32 {
    u32::try_from(turn).unwrap_or(LIVE)
}

impl Recorder {
    /// An empty one that looks for no shorter periods.
    pub(crate) fn new(least: usize) -> Self {
        Self { least: least.max(2), ..Self::default() }
    }

    /// Whether no more can be recorded.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= LONGEST
    }

    /// A step begins with the next request.
    pub(crate) fn mark(&mut self) {
        if self.marks.last() != Some(&self.requests.len()) {
            self.marks.push(self.requests.len());
        }
    }

    /// Notes a request of a rounded size, and what it got.
    pub(crate) fn allocated(&mut self, size: u64, address: u64) {
        let turn = self.requests.len();
        self.requests.push(Request { size, end: LIVE, is_shared: false, held: self.held });
        self.held += size;
        // A free that nobody noted: whatever it was, it has no place in a plan.
        if let Some(before) = self.live.insert(address, short(turn)) {
            let before = &mut self.requests[before as usize];
            before.is_shared = true;
            self.held -= before.size;
        }
        if self.marks.is_empty() {
            self.finder.look(&self.requests, self.least);
        }
    }

    /// Notes that what is at an address was given back, and whether other streams had used it.
    pub(crate) fn freed(&mut self, address: u64, is_shared: bool) {
        let Some(turn) = self.live.remove(&address) else { return };
        let turns = self.requests.len();
        let request = &mut self.requests[turn as usize];
        (request.end, request.is_shared) = (short(turns), is_shared);
        self.held -= request.size;
    }

    /// The two equal periods that end here, before the next request, if there are any.
    pub(crate) fn period(&self) -> Option<Period> {
        let is_marked = !self.marks.is_empty();
        let length = if is_marked { self.marked() } else { self.found() }?;
        Some(Period { requests: self.lifetimes(length), is_marked })
    }

    /// The length of the last two steps, if they are alike.
    fn marked(&self) -> Option<usize> {
        let &[.., first, second, last] = self.marks.as_slice() else { return None };
        let is_now = last == self.requests.len() && last > second;
        let alike = is_now && second - first == last - second && self.come_again(last - second);
        alike.then_some(last - second)
    }

    /// Whether the sizes of the last two periods of that length are the same.
    fn come_again(&self, length: usize) -> bool {
        let end = self.requests.len();
        let sizes = |from: usize| self.requests[from..from + length].iter().map(|request| request.size);
        sizes(end - 2 * length).eq(sizes(end - length))
    }

    /// The length of the last two periods that were found, if the stream holds as much after each.
    fn found(&self) -> Option<usize> {
        let Finder { distance, turns, .. } = self.finder;
        let end = self.requests.len();
        if distance == 0 || turns < distance || end < 2 * distance {
            return None;
        }
        let same = |turn: usize| self.requests[turn].held == self.held;
        (same(end - distance) && same(end - 2 * distance) && self.come_again(distance)).then_some(distance)
    }

    /// How long each request of a period lasts: the longer of the last two times. None for what lasts longer than a period
    /// or is used on other streams.
    fn lifetimes(&self, length: usize) -> Vec<Lifetime> {
        let end = self.requests.len();
        let turns = |turn: usize| {
            let request = &self.requests[turn];
            let turns = (request.end as usize).wrapping_sub(turn);
            let is_known = request.end != LIVE && turns <= length && !request.is_shared;
            is_known.then(|| turns.max(1))
        };
        let one = |position: usize| {
            let (first, second) = (end - 2 * length + position, end - length + position);
            let lasts = match (turns(first), turns(second)) {
                (Some(first), Some(second)) => first.max(second),
                // The second one may be given back in the next period only.
                (Some(first), None) if self.requests[second].end == LIVE && first > length - position => first,
                _ => 0,
            };
            Lifetime { size: self.requests[first].size, turns: short(lasts) }
        };
        (0..length).map(one).collect()
    }
}

/// A size as the hash counts it.
fn mixed(size: u64) -> u64 {
    let mixed = (size ^ size >> 17).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ mixed >> 32
}

impl Finder {
    /// Looks at the last request.
    fn look(&mut self, requests: &[Request], least: usize) {
        let (count, turn) = (requests.len(), requests.len() - 1);
        let size = requests[turn].size;
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(mixed(size));
        if let Some(gone) = turn.checked_sub(WINDOW) {
            let power = BASE.wrapping_pow(16);
            self.hash = self.hash.wrapping_sub(mixed(requests[gone].size).wrapping_mul(power));
        }
        if self.distance > 0 && requests[turn - self.distance].size == size {
            self.turns += 1;
        } else {
            (self.distance, self.turns) = (0, 0);
        }
        if count < WINDOW {
            return;
        }
        let before = self.seen.insert(self.hash, short(turn)).map(|before| turn - before as usize);
        if self.distance == 0
            && let Some(distance) = before.filter(|distance| *distance >= least)
        {
            self.distance = distance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs requests (a size, and after how many turns it is given back) over and over; the turns before a period is found.
    fn until_found(recorder: &mut Recorder, steps: &[(u64, usize)], mark: bool, most: usize) -> Option<Period> {
        let mut ends: Vec<(usize, u64)> = Vec::new();
        for turn in 0..most {
            if mark && turn % steps.len() == 0 {
                recorder.mark();
            }
            ends.retain(|(end, address)| {
                let is_over = *end == turn;
                if is_over {
                    recorder.freed(*address, false);
                }
                !is_over
            });
            if let Some(period) = recorder.period() {
                return Some(period);
            }
            let (size, turns) = steps[turn % steps.len()];
            recorder.allocated(size, turn as u64);
            ends.push((turn + turns, turn as u64));
        }
        None
    }

    const STEPS: [(u64, usize); 6] = [(512, 3), (1024, 1), (512, 4), (4096, 6), (512, 30), (1024, 5)];

    fn turns(period: &Period) -> Vec<u32> {
        period.requests.iter().map(|request| request.turns).collect()
    }

    #[test]
    fn marked_steps_are_periods() {
        let period = until_found(&mut Recorder::new(0), &STEPS, true, 100).unwrap();
        assert_eq!((period.is_marked, turns(&period)), (true, vec![3, 1, 4, 6, 0, 5]));
        let sizes: Vec<u64> = period.requests.iter().map(|request| request.size).collect();
        assert_eq!(sizes, STEPS.map(|(size, _)| size));
    }

    #[test]
    fn periods_are_found_by_their_sizes() {
        let mut recorder = Recorder::new(0);
        let period = until_found(&mut recorder, &STEPS, false, 200).unwrap();
        assert!(!period.is_marked && period.requests.len() == 6);
        let turn = recorder.requests.len();
        let mut expected = [3, 1, 4, 6, 0, 5];
        expected.rotate_left(turn % 6);
        assert_eq!(turns(&period), expected);
        assert_eq!(until_found(&mut Recorder::new(7), &STEPS, false, 200), None, "a shorter one than is looked for");
    }

    /// A part that comes again and again, while what is held grows and falls, is no period.
    #[test]
    fn parts_of_a_step_are_no_periods() {
        let mut steps: Vec<(u64, usize)> = (0..60).map(|turn| (512 + turn % 3 * 512, 120)).collect();
        (0..).zip(&mut steps).for_each(|(turn, step)| step.1 -= turn * 2);
        steps.extend((0..60).map(|turn| (8192 + turn % 3 * 512, 1)));
        let mut recorder = Recorder::new(0);
        let period = until_found(&mut recorder, &steps, false, 1000).unwrap();
        assert_eq!(period.requests.len(), 120);
    }

    #[test]
    fn what_other_streams_use_gets_no_place() {
        let mut recorder = Recorder::new(0);
        for _ in 0..2 {
            recorder.mark();
            recorder.allocated(512, 1);
            recorder.allocated(1024, 2);
            recorder.freed(1, true);
            recorder.freed(2, false);
            assert_eq!(recorder.period(), None);
        }
        recorder.mark();
        assert_eq!(turns(&recorder.period().unwrap()), [0, 1]);
        // A mark twice in a place is one.
        recorder.mark();
        assert!(recorder.period().is_some());
        recorder.allocated(512, 1);
        recorder.mark();
        assert_eq!(recorder.period(), None);
    }
}
