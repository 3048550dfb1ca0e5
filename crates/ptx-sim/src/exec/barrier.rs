//! The sixteen barriers of a block.
//!
//! **Invariants:** a barrier's round ends when all threads it waits for have arrived; then everything but its round and
//! its result is as at the beginning. Without a number of threads it waits for all that have not ended.

/// Barriers of a block.
const COUNT: usize = 16;

/// All barriers of a block.
#[derive(Debug, Default)]
pub(crate) struct Barriers([Barrier; COUNT]);

#[derive(Clone, Copy, Debug, Default)]
struct Barrier {
    round: u64,
    arrived: u32,
    /// How many are waited for; none for all.
    expected: Option<u32>,
    votes: Votes,
    /// What the round before brought, and when it ended.
    result: Votes,
    ended_at: u64,
}

/// What the threads that arrived said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Votes {
    pub(crate) yes: u32,
    pub(crate) no: u32,
}

impl Barriers {
    pub(crate) const COUNT: u64 = COUNT as u64;

    pub(crate) fn clear(&mut self) {
        self.0 = Default::default();
    }

    /// Threads arrive; the round they wait for the end of.
    pub(crate) fn arrive(
        &mut self,
        id: usize,
        (threads, votes): (u32, Votes),
        expected: Option<u32>,
        live: u32,
        now: u64,
    ) -> u64 {
        let barrier = &mut self.0[id];
        let round = barrier.round;
        barrier.arrived += threads;
        barrier.expected = expected;
        barrier.votes.yes += votes.yes;
        barrier.votes.no += votes.no;
        self.finish(id, live, now);
        round
    }

    /// Threads have ended, so fewer are waited for.
    pub(crate) fn end(&mut self, live: u32, now: u64) {
        (0..COUNT).for_each(|id| self.finish(id, live, now));
    }

    fn finish(&mut self, id: usize, live: u32, now: u64) {
        let barrier = &mut self.0[id];
        if barrier.arrived > 0 && barrier.arrived >= barrier.expected.unwrap_or(live) {
            *barrier = Barrier { round: barrier.round + 1, result: barrier.votes, ended_at: now, ..Barrier::default() };
        }
    }

    /// Whether a round has ended.
    pub(crate) fn is_over(&self, id: usize, round: u64) -> bool {
        self.0[id].round > round
    }

    /// When the last round ended.
    pub(crate) fn ended_at(&self, id: usize) -> u64 {
        self.0[id].ended_at
    }

    /// What the last round brought.
    pub(crate) fn result(&self, id: usize) -> Votes {
        self.0[id].result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_all_have_come() {
        let mut barriers = Barriers::default();
        let first = barriers.arrive(0, (32, Votes { yes: 3, no: 29 }), None, 64, 9);
        assert!(!barriers.is_over(0, first));
        assert_eq!(barriers.arrive(0, (32, Votes { yes: 1, no: 31 }), None, 64, 9), first);
        assert!(barriers.is_over(0, first));
        assert_eq!((barriers.result(0), barriers.ended_at(0)), (Votes { yes: 4, no: 60 }, 9));
        let second = barriers.arrive(0, (32, Votes::default()), None, 64, 9);
        assert_ne!(first, second);
        barriers.end(32, 9);
        assert!(barriers.is_over(0, second), "the others have ended");
    }

    #[test]
    fn a_number_of_threads_is_enough() {
        let mut barriers = Barriers::default();
        let round = barriers.arrive(3, (32, Votes::default()), Some(64), 1024, 9);
        barriers.end(1000, 9);
        assert!(!barriers.is_over(3, round));
        barriers.arrive(3, (32, Votes::default()), Some(64), 1024, 9);
        assert!(barriers.is_over(3, round) && !barriers.is_over(2, 0));
    }
}
