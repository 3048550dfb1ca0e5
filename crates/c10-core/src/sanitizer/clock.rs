//! Vector clocks: how much of the work of each stream, and of what each host thread does, is known to be over.

/// The position of a stream or a host thread in clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Agent(u32);

impl Agent {
    pub(super) fn at(position: usize) -> Self {
        Self(u32::try_from(position).unwrap_or(u32::MAX))
    }

    pub(super) fn position(self) -> usize {
        self.0 as usize
    }
}

/// For each agent the number of its last work that comes before; 0 for none. Numbers of work rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// Whether work of an agent comes before.
    #[inline]
    pub(super) fn covers(&self, agent: Agent, work: u64) -> bool {
        self.0.get(agent.position()).is_some_and(|&last| work <= last)
    }

    /// Work of an agent, and with it all that the agent did before, comes before.
    #[inline]
    pub(super) fn advance(&mut self, agent: Agent, work: u64) {
        if self.0.len() <= agent.position() {
            self.0.resize(agent.position() + 1, 0);
        }
        let last = &mut self.0[agent.position()];
        *last = work.max(*last);
    }

    /// What comes before the other clock comes before this one, too.
    #[inline]
    pub(super) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(last, other)| *last = (*last).max(*other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_knows_what_it_was_joined_with() {
        let [a, b] = [0, 1].map(Agent::at);
        let (mut first, mut second) = (Clock::default(), Clock::default());
        first.advance(a, 3);
        second.advance(b, 5);
        assert!(first.covers(a, 3) && !first.covers(a, 4) && !first.covers(b, 1));
        first.join(&second);
        assert!(first.covers(b, 5) && !second.covers(a, 1));
        first.advance(b, 2);
        assert!(first.covers(b, 5), "clocks do not go back");
    }
}
