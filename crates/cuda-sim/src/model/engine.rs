//! Queued work as a discrete event simulation.
//!
//! An [`Op`] waits until the operations it depends on have finished, then for its latency, then takes its time, and
//! takes effect at the moment it finishes. The engine knows order and time only; what an effect does is decided by
//! whoever takes the finished operation out of [`Engine::pop_due`] and must hand its id to [`Engine::complete`].
//!
//! Invariants: an id is in `ops` from submission to completion; `dependencies_open` counts the operations that name it
//! in `dependents`; an operation is in the heap exactly when that count is zero, none of its bytes is on a link, and it is neither
//! popped nor parked; `load`
//! counts the operations of each context.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::flows::{Ended, Flow, Flows};
use crate::topology::Way;

/// Identity of a piece of queued work; rises with every submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// How long a piece of work takes, in simulated nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) latency_ns: u64,
    pub(crate) duration_ns: u64,
    /// Links over which bytes go after the latency, which takes the time that the links need.
    pub(crate) way: Way,
    pub(crate) bytes: u64,
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
    /// Flows over links that have not ended.
    flows_open: usize,
    /// Whether one of them came to a link that is down.
    is_broken: bool,
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
    /// Whether what it moved over links was lost on the way.
    pub(crate) is_broken: bool,
}

/// All queued work of a machine.
#[derive(Debug)]
pub(crate) struct Engine<E> {
    next_id: u64,
    ops: BTreeMap<OpId, Op<E>>,
    due: BinaryHeap<Reverse<(u64, OpId)>>,
    load: BTreeMap<u64, usize>,
    /// What moves over links.
    pub(crate) flows: Flows,
}

impl<E> Engine<E> {
    pub(crate) fn new(flows: Flows) -> Self {
        Self { next_id: 1, ops: BTreeMap::new(), due: BinaryHeap::new(), load: BTreeMap::new(), flows }
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
            flows_open: 0,
            is_broken: false,
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
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.dependencies_open == 0) else { return };
        let Timing { latency_ns, duration_ns, way, bytes } = op.timing;
        let moves_ns = op.earliest_ns + latency_ns;
        if way.is_empty() {
            self.due.push(Reverse((moves_ns + duration_ns, id)));
        } else {
            op.flows_open = 1;
            self.flows.begin(id, Flow { way, bytes }, moves_ns);
        }
    }

    /// Takes out the work that finishes next, unless that is after `limit_ns`.
    pub(crate) fn pop_due(&mut self, limit_ns: u64) -> Option<Due<E>> {
        self.move_bytes(limit_ns);
        let &Reverse((at_ns, id)) = self.due.peek()?;
        if at_ns > limit_ns {
            return None;
        }
        self.due.pop();
        let op = self.ops.get_mut(&id)?;
        let effect = op.effect.take()?;
        Some(Due { id, asked: op.asked, context: op.context, at_ns, effect, is_broken: op.is_broken })
    }

    /// Lets bytes move over links until work is due, or until `limit_ns`.
    fn move_bytes(&mut self, limit_ns: u64) {
        while let Some(now_ns) = self.flows.next_ns().filter(|&now_ns| now_ns <= limit_ns) {
            if self.due.peek().is_some_and(|&Reverse((due_ns, _))| due_ns < now_ns) {
                return;
            }
            for ended in self.flows.pass_until(now_ns) {
                self.end_flow(ended, now_ns);
            }
        }
    }

    fn end_flow(&mut self, Ended { op: id, is_broken }: Ended, now_ns: u64) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.is_broken |= is_broken;
        op.flows_open = op.flows_open.saturating_sub(1);
        if op.flows_open == 0 {
            self.due.push(Reverse((now_ns, id)));
        }
    }

    /// Lets links change whose time has come, unless there is work to be done first.
    pub(crate) fn change_links(&mut self, now_ns: u64) {
        if !self.flows.is_change_due(now_ns) {
            return;
        }
        self.move_bytes(now_ns);
        if self.flows.next_ns().is_none_or(|next_ns| next_ns > now_ns) {
            for ended in self.flows.pass_until(now_ns) {
                self.end_flow(ended, now_ns);
            }
        }
    }

    /// Puts work back until what it moves over links, each part from a time on, has arrived.
    pub(crate) fn send(&mut self, due: Due<E>, flows: Vec<(Flow, u64)>) {
        let Some(op) = self.ops.get_mut(&due.id) else { return };
        op.effect = Some(due.effect);
        op.flows_open = flows.len();
        for (flow, begin_ns) in flows {
            self.flows.begin(due.id, flow, begin_ns);
        }
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
        let due = self.due.iter().map(|&Reverse((_, id))| id);
        due.chain(self.flows.ops()).filter_map(|id| Some((id, self.effect(id)?)))
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
        let mut engine = Engine::new(Flows::default());
        let slow = engine.submit(0, 1, &[], took(100), "slow");
        engine.submit(0, 1, &[slow], took(1), "after slow");
        engine.submit(0, 1, &[], took(5), "quick");
        assert_eq!(run(&mut engine), [("quick", 5), ("slow", 100), ("after slow", 101)]);
        assert_eq!((engine.len(), engine.load(1)), (0, 0));
    }

    #[test]
    fn nothing_finishes_before_its_time() {
        let mut engine = Engine::new(Flows::default());
        engine.submit(10, 1, &[], took(5), "work");
        assert!(engine.pop_due(14).is_none());
        assert_eq!(engine.next_due_ns(), Some(15));
        assert!(engine.pop_due(15).is_some());
    }

    #[test]
    fn finished_dependencies_do_not_block() {
        let mut engine = Engine::new(Flows::default());
        let first = engine.submit(0, 1, &[], took(1), "first");
        run(&mut engine);
        assert!(!engine.is_pending(first));
        engine.submit(7, 1, &[first, first], took(1), "second");
        assert_eq!(run(&mut engine), [("second", 8)]);
    }

    #[test]
    fn parked_work_waits_until_it_is_woken() {
        let mut engine = Engine::new(Flows::default());
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
        let mut engine = Engine::new(Flows::default());
        engine.submit(0, 1, &[], took(1), "waits");
        let due = engine.pop_due(u64::MAX).expect("it is due");
        engine.postpone(due, 50);
        assert_eq!(run(&mut engine), [("waits", 50)]);
    }
}
