//! Queued work as a discrete event simulation.
//!
//! An [`Op`] waits until the operations it depends on have finished, then for its latency, then takes its time, and
//! takes effect at the moment it finishes. The engine knows order and time only; what an effect does is decided by
//! whoever takes the finished operation out of [`Engine::pop_due`] and must hand its id to [`Engine::complete`].
//!
//! Invariants: an id is in `ops` from submission to completion; `dependencies_open` counts the operations that name it
//! in `dependents`; an operation is in the heap exactly when that count is zero and it is neither popped nor parked; `load`
//! counts the operations of each context.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::topology::{Link, Way};

/// Identity of a piece of queued work; rises with every submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// How long a piece of work takes, in simulated nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) latency_ns: u64,
    pub(crate) duration_ns: u64,
    /// Links that are busy meanwhile, and may be busy with other work before.
    pub(crate) way: Way,
}

#[derive(Debug)]
struct Op<E> {
    context: u64,
    /// The work that the program queued: itself, unless it is a part of other work.
    asked: OpId,
    dependencies_open: usize,
    dependents: Vec<OpId>,
    earliest_ns: u64,
    timing: Timing,
    effect: Option<E>,
}

/// A piece of work whose time has come.
#[derive(Debug)]
pub(crate) struct Due<E> {
    pub(crate) id: OpId,
    /// The work that the program queued: itself, unless it is a part of other work.
    pub(crate) asked: OpId,
    pub(crate) context: u64,
    pub(crate) at_ns: u64,
    pub(crate) effect: E,
}

/// All queued work of a machine.
#[derive(Debug)]
pub(crate) struct Engine<E> {
    next_id: u64,
    ops: BTreeMap<OpId, Op<E>>,
    due: BinaryHeap<Reverse<(u64, OpId)>>,
    load: BTreeMap<u64, usize>,
    /// Until when links are busy.
    busy: BTreeMap<Link, u64>,
}

impl<E> Engine<E> {
    pub(crate) fn new() -> Self {
        Self { next_id: 1, ops: BTreeMap::new(), due: BinaryHeap::new(), load: BTreeMap::new(), busy: BTreeMap::new() }
    }

    /// Queues work of `context` that starts after all of `after` have finished. Finished ids in `after` are fine.
    pub(crate) fn submit(&mut self, now_ns: u64, context: u64, after: &[OpId], timing: Timing, effect: E) -> OpId {
        let id = OpId(self.next_id);
        self.next_id += 1;
        let mut after = after.to_vec();
        after.sort_unstable();
        after.dedup();
        let mut dependencies_open = 0;
        for dependency in after {
            if let Some(op) = self.ops.get_mut(&dependency) {
                op.dependents.push(id);
                dependencies_open += 1;
            }
        }
        let op = Op {
            context,
            asked: id,
            dependencies_open,
            dependents: Vec::new(),
            earliest_ns: now_ns,
            timing,
            effect: Some(effect),
        };
        self.ops.insert(id, op);
        *self.load.entry(context).or_default() += 1;
        self.schedule_if_ready(id);
        id
    }

    /// Makes operations parts of other work: they were queued when that was.
    pub(crate) fn make_parts(&mut self, ops: &[OpId], of: OpId) {
        let asked = self.ops.get(&of).map_or(of, |op| op.asked);
        for op in ops {
            if let Some(op) = self.ops.get_mut(op) {
                op.asked = asked;
            }
        }
    }

    /// The id of what is queued next.
    pub(crate) fn next(&self) -> OpId {
        OpId(self.next_id)
    }

    /// The first operation that is not finished, or the next one.
    pub(crate) fn oldest(&self) -> OpId {
        self.ops.keys().next().copied().unwrap_or(self.next())
    }

    fn schedule_if_ready(&mut self, id: OpId) {
        let Some(op) = self.ops.get(&id).filter(|op| op.dependencies_open == 0) else { return };
        let Timing { latency_ns, duration_ns, way } = op.timing;
        let free_ns = way.links().filter_map(|link| self.busy.get(&link)).max().copied().unwrap_or(0);
        let moves_ns = op.earliest_ns.max(free_ns);
        let finish_ns = moves_ns + latency_ns + duration_ns;
        for link in way.links() {
            // What a copy waits for before its first byte does not keep others from the link.
            self.busy.insert(link, moves_ns + duration_ns);
        }
        self.due.push(Reverse((finish_ns, id)));
    }

    /// Takes out the work that finishes next, unless that is after `limit_ns`.
    pub(crate) fn pop_due(&mut self, limit_ns: u64) -> Option<Due<E>> {
        let &Reverse((at_ns, id)) = self.due.peek()?;
        if at_ns > limit_ns {
            return None;
        }
        self.due.pop();
        let op = self.ops.get_mut(&id)?;
        let effect = op.effect.take()?;
        Some(Due { id, asked: op.asked, context: op.context, at_ns, effect })
    }

    /// Puts work that cannot finish yet back, to be tried again at `at_ns`.
    pub(crate) fn postpone(&mut self, due: Due<E>, at_ns: u64) {
        if let Some(op) = self.ops.get_mut(&due.id) {
            op.effect = Some(due.effect);
            self.due.push(Reverse((at_ns, due.id)));
        }
    }

    /// Puts work back that waits for other work, until it is woken.
    pub(crate) fn park(&mut self, due: Due<E>) {
        if let Some(op) = self.ops.get_mut(&due.id) {
            op.effect = Some(due.effect);
        }
    }

    /// Lets parked work be due at `at_ns`.
    pub(crate) fn wake(&mut self, id: OpId, at_ns: u64) {
        if self.ops.contains_key(&id) {
            self.due.push(Reverse((at_ns, id)));
        }
    }

    /// Says that the effect of popped work has been applied; what waited for it goes on.
    pub(crate) fn complete(&mut self, id: OpId, at_ns: u64) {
        let Some(op) = self.ops.remove(&id) else { return };
        if let Some(load) = self.load.get_mut(&op.context) {
            *load -= 1;
        }
        for dependent in op.dependents {
            if let Some(waiting) = self.ops.get_mut(&dependent) {
                waiting.dependencies_open -= 1;
                waiting.earliest_ns = waiting.earliest_ns.max(at_ns);
                self.schedule_if_ready(dependent);
            }
        }
    }

    /// Work that waits for nothing but its time, in no order.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (OpId, &E)> {
        self.due.iter().filter_map(|&Reverse((_, id))| Some((id, self.effect(id)?)))
    }

    pub(crate) fn is_pending(&self, id: OpId) -> bool {
        self.ops.contains_key(&id)
    }

    /// Number of unfinished operations of a context.
    pub(crate) fn load(&self, context: u64) -> usize {
        self.load.get(&context).copied().unwrap_or(0)
    }

    /// Number of unfinished operations.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// When the next work finishes.
    #[cfg(test)]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.due.peek().map(|&Reverse((at_ns, _))| at_ns)
    }

    /// The effect of work that has not been taken out yet.
    pub(crate) fn effect(&self, id: OpId) -> Option<&E> {
        self.ops.get(&id)?.effect.as_ref()
    }

    /// Work that has not been taken out yet, with its effects, in order of submission.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (OpId, &E)> {
        self.ops.iter().filter_map(|(&id, op)| Some((id, op.effect.as_ref()?)))
    }

    /// Whether unfinished work is something that other work comes after, by whatever lies between.
    pub(crate) fn precedes(&self, first: OpId, last: OpId) -> bool {
        let mut seen = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(op) = open.pop() {
            if op == last {
                return true;
            }
            // Work comes after what was queued before it, so what is queued later than `last` leads nowhere.
            let next = self.ops.get(&op).into_iter().flat_map(|op| &op.dependents).filter(|&&next| next <= last);
            open.extend(next.filter(|&&next| seen.insert(next)));
        }
        false
    }

    /// Effects that have not been taken out yet, in order of submission.
    pub(crate) fn effects(&self) -> impl Iterator<Item = &E> {
        self.ops.values().filter_map(|op| op.effect.as_ref())
    }

    /// Effects of a context that have not been taken out yet, for discarding them.
    pub(crate) fn effects_mut(&mut self, context: u64) -> impl Iterator<Item = &mut E> {
        self.ops.values_mut().filter(move |op| op.context == context).filter_map(|op| op.effect.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(duration_ns: u64) -> Timing {
        Timing { duration_ns, ..Timing::default() }
    }

    fn run(engine: &mut Engine<&'static str>) -> Vec<(&'static str, u64)> {
        let mut history = Vec::new();
        while let Some(due) = engine.pop_due(u64::MAX) {
            history.push((due.effect, due.at_ns));
            engine.complete(due.id, due.at_ns);
        }
        history
    }

    #[test]
    fn dependencies_order_what_time_would_not() {
        let mut engine = Engine::new();
        let slow = engine.submit(0, 1, &[], took(100), "slow");
        engine.submit(0, 1, &[slow], took(1), "after slow");
        engine.submit(0, 1, &[], took(5), "quick");
        assert_eq!(run(&mut engine), [("quick", 5), ("slow", 100), ("after slow", 101)]);
        assert_eq!((engine.len(), engine.load(1)), (0, 0));
    }

    #[test]
    fn nothing_finishes_before_its_time() {
        let mut engine = Engine::new();
        engine.submit(10, 1, &[], took(5), "work");
        assert!(engine.pop_due(14).is_none());
        assert_eq!(engine.next_due_ns(), Some(15));
        assert!(engine.pop_due(15).is_some());
    }

    #[test]
    fn finished_dependencies_do_not_block() {
        let mut engine = Engine::new();
        let first = engine.submit(0, 1, &[], took(1), "first");
        run(&mut engine);
        assert!(!engine.is_pending(first));
        engine.submit(7, 1, &[first, first], took(1), "second");
        assert_eq!(run(&mut engine), [("second", 8)]);
    }

    #[test]
    fn parked_work_waits_until_it_is_woken() {
        let mut engine = Engine::new();
        let parked = engine.submit(0, 1, &[], took(1), "parked");
        engine.submit(0, 1, &[parked], took(1), "after it");
        let due = engine.pop_due(u64::MAX).expect("it is due");
        engine.park(due);
        assert!(run(&mut engine).is_empty() && engine.is_pending(parked));
        engine.wake(parked, 70);
        assert_eq!(run(&mut engine), [("parked", 70), ("after it", 71)]);
    }

    #[test]
    fn postponed_work_comes_back() {
        let mut engine = Engine::new();
        engine.submit(0, 1, &[], took(1), "waits");
        let due = engine.pop_due(u64::MAX).expect("it is due");
        engine.postpone(due, 50);
        assert_eq!(run(&mut engine), [("waits", 50)]);
    }
}
