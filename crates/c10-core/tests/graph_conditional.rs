//! Conditional nodes: which bodies run, how often, what they may use, what is refused, and every way out of a body.
//!
//! # Safety
//! The kernels stand below, with what they touch.
#![expect(unsafe_code, reason = "launches of the kernels below")]
#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use c10_core::{
    CUDAGraph, CaptureMode, CaptureScope, Condition, DeviceBuffer, Error, GraphError, GraphNodeKind,
    GraphUpdateFailure, Kernel, LaunchConfig, MemoryError, Module, Result, StartError, Stream,
};
use common::{DEVICE, Rig, code, config, fail_each_call, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CudaVersion;

const LEN: usize = 64;
const GLOBAL: CaptureMode = CaptureMode::Global;

/// `down(word)`: the word less one. `add(to, from)`: the sum of two words into the first. `set(condition, value)`: as a
/// program's own kernel does it.
const TEXT: &str = "\
.version 7.8
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry down(.param .u64 word)
{
    .reg .b64 %d; .reg .b32 %r;
    ld.param.u64 %d, [word]; ld.global.u32 %r, [%d]; sub.u32 %r, %r, 1; st.global.u32 [%d], %r;
    ret;
}
.visible .entry add(.param .u64 to, .param .u64 from)
{
    .reg .b64 %d, %e; .reg .b32 %r, %s;
    ld.param.u64 %d, [to]; ld.param.u64 %e, [from]; ld.global.u32 %r, [%d]; ld.global.u32 %s, [%e];
    add.u32 %r, %r, %s; st.global.u32 [%d], %r;
    ret;
}
.visible .entry set(.param .u64 condition, .param .u32 value)
{
    .reg .b64 %d; .reg .b32 %r; .param .b64 h; .param .b32 v;
    ld.param.u64 %d, [condition]; ld.param.u32 %r, [value];
    st.param.b64 [h], %d; st.param.b32 [v], %r;
    call.uni cudaGraphSetConditional, (h, v);
    ret;
}
";

/// Streams, a buffer of bytes and one of a few numbers.
struct Set {
    stream: Stream,
    side: Stream,
    other: Stream,
    bytes: DeviceBuffer,
    words: DeviceBuffer,
}

impl Set {
    fn new(rig: &Rig) -> Result<Self> {
        let new = || rig.runtime.streams().pooled(DEVICE, 0);
        let (stream, side, other) = (new()?, new()?, new()?);
        let (bytes, words) = (rig.runtime.memory().buffer(LEN, &stream)?, rig.runtime.memory().buffer(LEN, &stream)?);
        Ok(Self { stream, side, other, bytes, words })
    }

    fn write(&self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.words.copy_from_slice(0, &bytes).unwrap();
    }

    fn words(&self) -> Vec<u32> {
        let bytes = self.words.to_vec().unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// What is in the bytes after a replay that began with zeros.
    fn replay(&self, rig: &Rig, graph: &mut CUDAGraph) -> u8 {
        self.bytes.fill(0..LEN, 0, &self.stream).unwrap();
        self.stream.synchronize().unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        let bytes = self.bytes.to_vec().unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
        bytes[0]
    }

    fn record<T>(&self, graph: &mut CUDAGraph, body: impl FnOnce(&CaptureScope<'_>) -> Result<T>) -> Result<T> {
        graph.record(&self.stream, None, GLOBAL, body)
    }
}

fn graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, false)
}

fn kernel(rig: &Rig, name: &str) -> Kernel {
    Module::from_ptx(&rig.runtime, DEVICE, TEXT).unwrap().kernel(name).unwrap()
}

/// Records `set` on a stream.
fn set(kernel: &Kernel, condition: Condition, value: u32, stream: &Stream) -> Result<()> {
    // SAFETY: the kernel has these two parameters and touches no memory.
    unsafe { kernel.launch(&LaunchConfig::linear(1, 1), &[condition.handle().into(), value.into()], stream) }
}

/// Records `down` of a buffer's first word.
fn down(kernel: &Kernel, words: &DeviceBuffer, stream: &Stream) -> Result<()> {
    // SAFETY: the kernel changes the first word of the buffer.
    unsafe { kernel.launch(&LaunchConfig::linear(1, 1), &[words.into()], stream) }
}

fn free_of_leaks(rig: Rig) {
    rig.runtime.synchronize(DEVICE).unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.runtime.inconsistency(), rig.reserved_bytes()), (None, 0));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn an_if_body_runs_by_the_default_value() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    for (default, expected) in [(0, 3), (1, 5), (7, 5)] {
        let mut graph = CUDAGraph::on(&rig.runtime, true);
        let value = s.record(&mut graph, |scope| {
            scope.fill(&s.bytes, 0..LEN, 3)?;
            let condition = scope.condition(default)?;
            let value = scope.if_node(condition, &s.side, |scope| {
                assert_eq!(rig.runtime.streams().current(DEVICE)?, s.side);
                scope.fill(&s.bytes, 0..LEN, 4)?;
                scope.fill(&s.bytes, 0..LEN, 5).map(|()| "from the body")
            })?;
            assert_eq!((s.side.is_capturing()?, rig.runtime.streams().current(DEVICE)?), (false, s.stream.clone()));
            // Behind the node.
            scope.copy(&s.words, 0, &s.bytes, 0..LEN).map(|()| value)
        });
        assert_eq!(value, Ok("from the body"));
        for _ in 0..2 {
            assert_eq!(s.replay(&rig, &mut graph), expected);
            assert_eq!(s.words.to_vec().unwrap(), [expected; LEN]);
        }
        let nodes = graph.report().unwrap().nodes.unwrap();
        assert_eq!(nodes[&GraphNodeKind::Conditional], 1);
        assert_eq!((graph.node_count(), nodes[&GraphNodeKind::Memset]), (3, 1), "those of the body do not count");
    }
    drop(s);
    free_of_leaks(rig);
}

#[test]
fn a_kernel_sets_the_condition() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let mut graph = graph(&rig);
    s.record(&mut graph, |scope| {
        scope.fill(&s.bytes, 0..LEN, 1)?;
        let condition = scope.condition(1)?;
        scope.set_condition(condition, &s.words, 4)?;
        scope.if_node(condition, &s.side, |scope| scope.fill(&s.bytes, 0..LEN, 2))
    })
    .unwrap();
    for (word, expected) in [(0, 1), (9, 2), (1 << 31, 2), (0, 1)] {
        s.write(&[77, word]);
        assert_eq!(s.replay(&rig, &mut graph), expected, "{word}");
    }
    let own = kernel(&rig, "set");
    for (value, expected) in [(0, 1), (3, 2)] {
        let mut graph = self::graph(&rig);
        s.record(&mut graph, |scope| {
            scope.fill(&s.bytes, 0..LEN, 1)?;
            let condition = scope.condition(1 - value.min(1))?;
            set(&own, condition, value, &s.stream)?;
            scope.if_node(condition, &s.side, |scope| scope.fill(&s.bytes, 0..LEN, 2))
        })
        .unwrap();
        assert_eq!((s.replay(&rig, &mut graph), s.replay(&rig, &mut graph)), (expected, expected));
    }
}

#[test]
fn a_loop_runs_until_its_condition_is_zero() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let (down, add) = (kernel(&rig, "down"), kernel(&rig, "add"));
    let mut graph = graph(&rig);
    let sum = rig.runtime.memory().buffer(4, &s.stream).unwrap();
    s.record(&mut graph, |scope| {
        let condition = scope.condition(0)?;
        scope.set_condition(condition, &s.words, 0)?;
        scope.while_node(condition, &s.side, |scope| {
            // SAFETY: the kernel adds the first word of a buffer to that of another.
            unsafe { add.launch(&LaunchConfig::linear(1, 1), &[(&sum).into(), (&s.words).into()], &s.side) }?;
            self::down(&down, &s.words, &s.side)?;
            scope.set_condition(condition, &s.words, 0)
        })
    })
    .unwrap();
    for (start, total) in [(5, 15_u32), (0, 0), (1, 1), (100, 5050)] {
        s.write(&[start]);
        sum.fill(0..4, 0, &s.stream).unwrap();
        s.stream.synchronize().unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!((sum.to_vec().unwrap(), s.words()[0]), (total.to_le_bytes().to_vec(), 0), "from {start}");
    }
}

#[test]
fn a_loop_without_an_end_loses_the_device_and_does_not_hang() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let mut graph = graph(&rig);
    s.record(&mut graph, |scope| {
        let condition = scope.condition(1)?;
        scope.while_node(condition, &s.side, |_| Ok(()))
    })
    .unwrap();
    graph.replay().unwrap();
    assert_eq!(code(rig.runtime.synchronize(DEVICE)), 702);
}

#[test]
fn else_and_switch() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    for (default, expected) in [(0, 6), (2, 5)] {
        let mut graph = graph(&rig);
        s.record(&mut graph, |scope| {
            let fill = |scope: &CaptureScope<'_>, value| scope.fill(&s.bytes, 0..LEN, value).map(|()| value);
            let values = scope.if_else_node(
                scope.condition(default)?,
                &s.side,
                |scope| fill(scope, 5),
                |scope| fill(scope, 6),
            )?;
            assert_eq!(values, (5, 6));
            Ok(())
        })
        .unwrap();
        assert_eq!(s.replay(&rig, &mut graph), expected);
    }
    let mut graph = graph(&rig);
    let made = s.record(&mut graph, |scope| {
        let condition = scope.condition(0)?;
        scope.set_condition(condition, &s.words, 0)?;
        scope.switch_node(condition, &s.side, 3, |index, scope| {
            scope.fill(&s.bytes, 0..LEN, 10 + u8::try_from(index).unwrap()).map(|()| index)
        })
    });
    assert_eq!(made, Ok(vec![0, 1, 2]));
    for (value, expected) in [(0, 10), (2, 12), (1, 11), (3, 0), (u32::MAX, 0)] {
        s.write(&[value]);
        assert_eq!(s.replay(&rig, &mut graph), expected, "{value}");
    }
}

#[test]
fn bodies_nest_fork_and_allocate_from_the_pool() {
    (1..=8).for_each(|seed| nest(Rig::new(config().seed(seed))));
}

fn nest(rig: Rig) {
    let s = Set::new(&rig).unwrap();
    let third = rig.stream();
    let outside = rig.runtime.memory().buffer(LEN, &s.stream).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, true);
    let before = rig.allocated_bytes();
    s.record(&mut graph, |scope| {
        let (outer, not) = (scope.condition(1)?, scope.condition(0)?);
        scope.if_node(outer, &s.side, |scope| {
            let inside = scope.buffer(1 << 20)?;
            scope.fill(&inside, 0..LEN, 8)?;
            scope.fork(&third, |scope| scope.fill(&inside, LEN..2 * LEN, 9))?;
            let inner = scope.condition(1)?;
            scope.if_node(inner, &s.other, |scope| {
                let more = scope.buffer(1 << 20)?;
                scope.copy(&more, 0, &inside, LEN..2 * LEN)?;
                scope.copy(&outside, 0, &more, 0..LEN)?;
                scope.copy(&s.bytes, 0, &outside, 0..LEN)
            })
        })?;
        scope.if_node(not, &s.side, |scope| scope.fill(&s.bytes, 0..LEN, 1))
    })
    .unwrap();
    let report = graph.report().unwrap();
    assert!(report.reserved_bytes >= 2 << 20, "{report:?}");
    assert_eq!(rig.allocated_bytes(), before, "what the bodies had is free again, for the graph");
    assert_eq!(report.kept_buffers, 2, "those from outside of the pool");
    drop(outside);
    assert_eq!(s.replay(&rig, &mut graph), 9);
    graph.reset().unwrap();
    drop((graph, s, third));
    free_of_leaks(rig);
}

#[test]
fn graphs_with_conditional_nodes_are_written_updated_and_not_copied() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let own = kernel(&rig, "set");
    let capture = |value: u32, byte: u8, is_loop: bool| {
        let mut graph = CUDAGraph::on(&rig.runtime, true);
        s.record(&mut graph, |scope| {
            let condition = scope.condition(value)?;
            let body = |scope: &CaptureScope<'_>| {
                scope.fill(&s.bytes, 0..LEN, byte)?;
                set(&own, condition, 0, &s.side)
            };
            if is_loop { scope.while_node(condition, &s.side, body) } else { scope.if_node(condition, &s.side, body) }
        })
        .unwrap();
        graph
    };
    let path = std::env::temp_dir().join(format!("c10-core-conditional-{}.dot", std::process::id()));
    let mut graph = capture(1, 4, false);
    graph.debug_dump(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.contains("CONDITIONAL") && text.contains("MEMSET"), "{text}");
    assert_eq!(s.replay(&rig, &mut graph), 4);
    graph.update(&mut capture(2, 5, false)).unwrap();
    assert_eq!(s.replay(&rig, &mut graph), 5);
    graph.update(&mut capture(0, 6, false)).unwrap();
    assert_eq!(s.replay(&rig, &mut graph), 0, "the new default value");
    match graph.update(&mut capture(1, 7, true)) {
        Err(Error::Graph(GraphError::Update(refusal))) => {
            assert_eq!(refusal.reason, GraphUpdateFailure::ParametersChanged);
            assert_eq!(refusal.node.map(|node| node.kind), Some(GraphNodeKind::Conditional));
        }
        other => panic!("{other:?}"),
    }
    let mut parent = self::graph(&rig);
    assert_eq!(code(s.record(&mut parent, |scope| scope.add_child(&graph))), 801);
    assert_eq!(s.replay(&rig, &mut capture(1, 7, true)), 7, "a loop of one turn");
}

#[test]
fn what_is_refused_changes_nothing() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let default = rig.runtime.streams().default(DEVICE).unwrap();
    let mut escaped = None;
    let mut graph = graph(&rig);
    s.record(&mut graph, |scope| {
        let condition = scope.condition(1)?;
        escaped = Some(condition);
        let nothing = |_: &CaptureScope<'_>| Ok::<_, Error>(());
        assert_eq!(scope.if_node(condition, &default, nothing), Err(Error::Graph(GraphError::OnDefaultStream)));
        assert_eq!(
            scope.set_condition(condition, &s.words, 2),
            Err(Error::Graph(GraphError::UnalignedCondition { offset: 2 }))
        );
        let outside = Err(Error::Memory(MemoryError::OutOfRange { offset: LEN - 3, bytes: 4, len: LEN }));
        assert_eq!(scope.set_condition(condition, &s.words, LEN - 3), outside);
        scope.if_node(condition, &s.side, |scope| {
            let inner = scope.condition(1)?;
            assert_eq!(
                scope.if_node(condition, &s.other, nothing),
                Err(Error::Graph(GraphError::ConditionOfOtherScope))
            );
            scope.if_node(inner, &s.other, nothing)
        })?;
        assert_eq!(code(scope.if_node(condition, &s.side, nothing)), 1, "a node has it already");
        Ok(())
    })
    .unwrap();
    graph.replay().unwrap();
    let escaped = escaped.unwrap();
    let later = s.record(&mut self::graph(&rig), |scope| scope.set_condition(escaped, &s.words, 0));
    assert_eq!(later, Err(Error::Graph(GraphError::ConditionOfOtherScope)));
    let later = s.record(&mut self::graph(&rig), |scope| scope.if_node(escaped, &s.side, |_| Ok(())));
    assert_eq!(later, Err(Error::Graph(GraphError::ConditionOfOtherScope)));
    let unused = s.record(&mut self::graph(&rig), |scope| scope.condition(1).map(drop));
    assert_eq!(code(unused), 1);
    drop((s, graph, default));
    free_of_leaks(rig);
}

#[test]
fn older_drivers_say_what_they_lack() {
    let lacks = |result: Result<()>| match result {
        Err(Error::Unavailable(lacking)) => (lacking.symbol, lacking.needs, lacking.found),
        other => panic!("{other:?}"),
    };
    let rig = Rig::new(config().driver_version(CudaVersion(12020)));
    let s = Set::new(&rig).unwrap();
    let refused = s.record(&mut graph(&rig), |scope| scope.condition(1).map(drop));
    assert_eq!(lacks(refused), ("cuGraphConditionalHandleCreate", 12030, 12020));
    drop(s);
    free_of_leaks(rig);
    let rig = Rig::new(config().driver_version(CudaVersion(12030)));
    let s = Set::new(&rig).unwrap();
    let several = |scope: &CaptureScope<'_>| {
        let nothing = |_: &CaptureScope<'_>| Ok::<_, Error>(());
        scope.if_else_node(scope.condition(1)?, &s.side, nothing, nothing).map(drop)
    };
    assert_eq!(lacks(s.record(&mut graph(&rig), several)), ("cuGraphAddNode_v2", 12080, 12030));
    let switch = |scope: &CaptureScope<'_>| scope.switch_node(scope.condition(1)?, &s.side, 1, |_, _| Ok(())).map(drop);
    assert_eq!(lacks(s.record(&mut graph(&rig), switch)), ("cuGraphAddNode_v2", 12080, 12030));
    let mut works = graph(&rig);
    s.record(&mut works, |scope| scope.if_node(scope.condition(1)?, &s.side, |scope| scope.fill(&s.bytes, 0..LEN, 2)))
        .unwrap();
    assert_eq!(s.replay(&rig, &mut works), 2);
}

/// A name, and what is done in a body.
type Act<'a> = (&'a str, &'a dyn Fn(&CaptureScope<'_>) -> Result<()>);

#[test]
fn every_way_out_of_a_body() {
    let rig = rig();
    let s = Set::new(&rig).unwrap();
    let outside = rig.runtime.memory().buffer(LEN, &s.stream).unwrap();
    let host = vec![1; LEN];
    let acts: [Act<'_>; 5] = [
        ("an error of its own", &|_| Err(Error::Graph(GraphError::InvalidCapture))),
        ("a wait", &|_| s.side.synchronize()),
        ("a copy of plain memory", &|_| outside.copy_from_slice(0, &host)),
        ("the stream around it", &|_| s.side.wait_stream(&s.stream)),
        ("a panic", &|_| panic!("on purpose")),
    ];
    for (name, act) in acts {
        for depth in [1, 2] {
            let mut graph = graph(&rig);
            let record = || {
                s.record(&mut graph, |scope| {
                    scope.if_node(scope.condition(1)?, if depth == 1 { &s.side } else { &s.other }, |scope| {
                        let _inside = scope.buffer(1 << 20)?;
                        scope.fill(&outside, 0..LEN, 1)?;
                        if depth == 1 { act(scope) } else { scope.if_node(scope.condition(1)?, &s.side, act) }
                    })
                })
            };
            let ended = catch_unwind(AssertUnwindSafe(record));
            assert!(!matches!(ended, Ok(Ok(()))), "{name}");
            for stream in [&s.stream, &s.side, &s.other] {
                assert!(!stream.is_capturing().unwrap(), "{name}");
            }
            assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default(), "{name}");
            let buffer = rig.runtime.memory().buffer(LEN, &s.side).unwrap();
            buffer.fill(0..LEN, 3, &s.side).unwrap();
            s.side.synchronize().unwrap();
            assert_eq!(rig.machine.live().graphs, 0, "{name}");
        }
    }
    drop((s, outside));
    free_of_leaks(rig);
}

/// A capture with bodies inside each other, and its replays.
fn program(rig: &Rig) -> Result<()> {
    let s = Set::new(rig)?;
    let mut graph = CUDAGraph::on(&rig.runtime, true);
    s.words.fill(0..LEN, 1, &s.stream)?;
    s.record(&mut graph, |scope| {
        scope.fill(&s.bytes, 0..LEN, 1)?;
        let condition = scope.condition(0)?;
        scope.set_condition(condition, &s.words, 0)?;
        scope.while_node(condition, &s.side, |scope| {
            let inside = scope.buffer(1 << 20)?;
            scope.fill(&inside, 0..LEN, 2)?;
            scope.copy(&s.words, 0, &inside, 0..LEN)?;
            let inner = scope.condition(1)?;
            scope.if_else_node(
                inner,
                &s.other,
                |scope| scope.copy(&s.bytes, 0, &s.words, 0..LEN),
                |scope| scope.fill(&s.bytes, 0..LEN, 9),
            )?;
            scope.fill(&s.words, 0..LEN, 0)?;
            scope.set_condition(condition, &s.words, 0)
        })
    })?;
    graph.replay()?;
    rig.runtime.synchronize(DEVICE)?;
    assert_eq!(s.bytes.to_vec()?, [2; LEN]);
    graph.reset()?;
    drop((graph, s));
    rig.runtime.memory().empty_cache()
}

fn run_with(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let rig = Rig::new(config());
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    if let Err(error) = &result {
        let told =
            error.error_code().is_some() || error.is_out_of_memory() || *error == Error::Start(StartError::NoDevices);
        assert!(told, "{context}: {error:?}");
    }
    rig.runtime.synchronize(DEVICE).unwrap_or_else(|error| panic!("{context}, then {result:?}: {error:?}"));
    assert_eq!((rig.runtime.inconsistency(), rig.allocated_bytes()), (None, 0), "{context}: {result:?}");
    let live = rig.machine.live();
    assert_eq!((live.graphs, live.graph_execs), (0, 0), "{context}: {result:?}");
    program(&rig).unwrap_or_else(|error| panic!("{context}, then {result:?}; the second run: {error:?}"));
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.runtime.inconsistency(), rig.reserved_bytes()), (None, 0), "{context}");
    assert_eq!(rig.left(), LiveHandles::default(), "{context}: {result:?}");
    result.is_err()
}

#[test]
fn any_call_may_fail() {
    let rig = rig();
    program(&rig).unwrap();
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    for needed in ["cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuStreamBeginCaptureToGraph"] {
        assert!(calls.iter().any(|(call, ..)| *call == needed), "{needed} is not called");
    }
    let (tried, noticed) = fail_each_call(&calls, run_with);
    assert!(tried > 150 && noticed * 10 > tried * 7, "{noticed} of {tried} failures were noticed");
}

/// The stream that recorded a body is as free after it as before, while the capture around it goes on.
#[test]
fn the_side_stream_leaves_the_capture_with_the_body() {
    let rig = rig();
    let set = Set::new(&rig).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let recorded: Result<()> = graph.record(&set.stream, None, CaptureMode::Relaxed, |scope| {
        let condition = scope.condition(1)?;
        scope.if_node(condition, &set.side, |body| body.fill(&set.bytes, 0..LEN, 7))?;
        let _current = rig.runtime.streams().guard(&set.side)?;
        set.words.copy_from_slice(0, &[1, 2, 3, 4])
    });
    recorded.unwrap();
    let mut words = [0; 4];
    set.words.copy_to_slice(0, &mut words).unwrap();
    assert_eq!(words, [1, 2, 3, 4], "the copy was made at once");
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(set.bytes.to_vec().unwrap(), [7; LEN]);
}
