//! Memory that other streams used during a capture, given to that capture again; torch's option
//! `graph_capture_record_stream_reuse`.
//!
//! During a capture events tell nothing, so a block that other streams used waits for its end. But the graph itself may
//! say that its use is over: when the block is given back, the nodes that its streams have come to are noted as its
//! *markers*; once a request comes on the block's own stream whose next work follows all of them, every replay will have
//! finished with the block before that work begins.
//!
//! **Invariants:** a block without markers waits for the end of all scopes. Of a stream that captures the nodes known to
//! precede its next work only become more, so what was found once is kept as long as the capture lasts.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::handles::{CapturePoint, NodeHandle, StreamRef};
use crate::driver::Driver;

/// The nodes of a capture after which a block is no longer used; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Markers {
    capture: u64,
    nodes: Vec<NodeHandle>,
}

impl Markers {
    /// Where those streams are now; `None` unless they all take part in one capture that has nodes.
    pub(crate) fn of<D: Driver>(driver: &D, streams: impl IntoIterator<Item = StreamRef>) -> Result<Option<Self>> {
        let mut markers: Option<Self> = None;
        for stream in streams {
            let Some(point) = driver.capture_point(stream)? else { return Ok(None) };
            let markers = markers.get_or_insert(Self { capture: point.capture, nodes: Vec::new() });
            if markers.capture != point.capture {
                return Ok(None);
            }
            let new: Vec<NodeHandle> = point.nodes.into_iter().filter(|node| !markers.nodes.contains(node)).collect();
            markers.nodes.extend(new);
        }
        Ok(markers.filter(|markers| !markers.nodes.is_empty()))
    }
}

/// The nodes that come before the next work of capturing streams, as far as anybody asked.
#[derive(Debug, Default)]
pub(crate) struct Passed(BTreeMap<(u64, StreamRef), BTreeSet<NodeHandle>>);

impl Passed {
    /// Adds what precedes the present point of a stream.
    pub(crate) fn follow<D: Driver>(&mut self, driver: &D, stream: StreamRef, point: &CapturePoint) -> Result<()> {
        let key = (point.capture, stream);
        let nodes = self.0.entry(key).or_default();
        let mut next: Vec<NodeHandle> = point.nodes.iter().copied().filter(|node| nodes.insert(*node)).collect();
        while let Some(node) = next.pop() {
            match driver.node_dependencies(node) {
                Ok(before) => next.extend(before.into_iter().filter(|node| nodes.insert(*node))),
                Err(error) => {
                    // What some of them follow is not known.
                    self.0.remove(&key);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Whether a stream's next work in a capture follows all markers.
    pub(crate) fn are_behind(&self, markers: &Markers, stream: StreamRef) -> bool {
        let passed = self.0.get(&(markers.capture, stream));
        passed.is_some_and(|passed| markers.nodes.iter().all(|node| passed.contains(node)))
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets captures that are over.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::caching::tests::fake::Capturing;
    use crate::caching::tests::scripts::{Bench, figures, on};

    const REUSE: &str = "graph_capture_record_stream_reuse:True";
    const FREE_AGAIN: &str = "a 2@100 5e6";

    /// What was handed out and what awaits other streams, after a block of stream 100 that stream 101 used was given
    /// back with those streams at nodes, and asked for again with stream 100 at others.
    fn after(options: &str, edges: &str, then: &str) -> [i64; 2] {
        let script = format!("begin, a 1@100 5e6, r 1 101, at 100 1, at 101 2, f 1, {edges}, {then}, {FREE_AGAIN}");
        let stats = Bench::with(64 << 30, options).run(&script);
        [figures(&stats.allocation)[0], figures(&stats.active)[0]]
    }

    #[test]
    fn memory_is_free_once_the_capture_orders_its_use() {
        assert_eq!(after(REUSE, "edge 3 1 2", "at 100 3"), [1, 1], "a join of both streams");
        assert_eq!(after(REUSE, "edge 3 1 2, edge 4 3", "at 100 4"), [1, 1], "further on");
        assert_eq!(after(REUSE, "edge 4 2", "at 100 1 4"), [1, 1], "two nodes at once");
        assert_eq!(after(REUSE, "edge 3 1", "at 100 3"), [1, 2], "the other stream is still at work");
        assert_eq!(after(REUSE, "edge 3 1 2", "at 101 3"), [1, 2], "joined on the other stream");
        assert_eq!(after(REUSE, "edge 3 1 2", "at 100"), [1, 2], "nothing is known of the stream");
        assert_eq!(after("", "edge 3 1 2", "at 100 3"), [1, 2], "without the option");
    }

    #[test]
    fn what_was_freed_so_serves_the_capture() {
        let mut bench = Bench::with(64 << 30, REUSE);
        let script = "begin, a 1@100 5e6, r 1 101, at 100 1, at 101 2, f 1, edge 3 1 2, at 100 3";
        bench.run(script);
        let before = bench.allocator.snapshot(None)[0].blocks[0].address;
        bench.run("a 2@100 5e6, end, release, f 2, e");
        assert_eq!(bench.stats().reserved_bytes.all.current, 0);
        assert!(bench.stats().segment.all.allocated == 1 && before != 0, "one segment was enough");
    }

    #[test]
    fn memory_waits_for_the_end_of_the_scope_if_a_stream_captures_nothing() {
        let mut bench = Bench::with(64 << 30, REUSE);
        bench.run("begin, a 1@100 5e6, r 1 16, at 100 1, f 1, edge 2 1, at 100 2, a 2@100 5e6");
        assert_eq!(figures(&bench.stats().active)[0], 2);
        bench.run("end, a 3 100");
        assert_eq!(figures(&bench.stats().active)[0], 2);
    }

    #[test]
    fn markers_of_an_earlier_capture_say_nothing_about_a_later_one() {
        let mut bench = Bench::with(64 << 30, REUSE);
        bench.run("begin, a 1@100 5e6, r 1 101, at 100 1, at 101 2, f 1");
        bench.driver.captures().capturing = Capturing::From { first: 100, id: 8 };
        bench.run("edge 3 1 2, at 100 3");
        bench.allocator.devices[0].cache.free_passed(&bench.driver, on(100)).unwrap();
        assert_eq!(figures(&bench.stats().active)[0], 1);
    }

    /// Whatever fails is told, loses nothing and can be done again.
    #[test]
    fn a_failed_question_changes_nothing() {
        for failing in 1.. {
            let mut bench = Bench::with(64 << 30, REUSE);
            bench.run("begin, a 1@100 5e6, r 1 101, at 100 1, at 101 2, edge 3 1 2, edge 4 3");
            bench.driver.calls().fail(failing);
            let steps = ["f 1", "at 100 4", FREE_AGAIN];
            let errors: Vec<&str> = steps.into_iter().filter(|step| bench.step(step).is_err()).collect();
            match errors.as_slice() {
                [] => return assert!(failing > 6, "{failing}"),
                ["f 1"] => assert_eq!(figures(&bench.stats().active)[0], 2, "it waits for the end"),
                [step] => {
                    bench.step(step).unwrap();
                    assert_eq!(figures(&bench.stats().active)[0], 1, "call {failing}");
                }
                more => panic!("call {failing}: {more:?}"),
            }
        }
    }
}
