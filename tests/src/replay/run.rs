//! One golden script on the runtime: every operation in order, every answer compared.
//!
//! The runtime is the real one; beneath it is the simulated driver, told by a [`Control`](super::control::Control) to
//! answer as the recorder's driver did.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::script::{Action, Block, Line, Script, Segment};
use c10_core::{
    CUDAGraph, CaptureMode, DeviceIndex, Error, MemPool, MemPoolGuard, MemPoolOptions, PoolId, Runtime, Stream,
    StreamGuard,
};
use cuda_sim::{Config, Machine};
use testkit::leftovers;

pub use super::compare::Difference;
use super::compare::{figures, hex, segments};
use super::interpose::{Controlled, driver};

const DEVICE: DeviceIndex = DeviceIndex(0);

/// The stream that captures run on.
const CAPTURE_STREAM: i64 = 9;

/// Streams of the recorder: the default one, three of the pool, the one of captures.
const OTHER_STREAMS: [i64; 4] = [1, 2, 3, CAPTURE_STREAM];

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every answer was the recorded one.
    Passed,
    /// As [`Self::Passed`], but for counts that depend on an order that PyTorch takes from a hash map; these were the
    /// lines.
    PassedButForOrder(Vec<usize>),
    /// An answer was another one.
    Failed {
        /// Number of the line, counted from 1.
        line: usize,
        /// What differs.
        difference: Difference,
    },
}

impl Outcome {
    /// Whether the script counts as passed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        !matches!(self, Self::Failed { .. })
    }

    /// The line that is printed for the script of this name.
    #[must_use]
    pub fn report(&self, name: &str) -> String {
        match self {
            Self::Passed => format!("PASS {name}"),
            Self::PassedButForOrder(lines) => {
                let count = lines.len();
                format!("PASS {name} (inactive_split counts differ by the order of completion at {count} lines)")
            }
            Self::Failed { line, difference: Difference { key, expected, got } } => {
                format!("FAIL {name}: line {line}, {key}, expected {expected}, got {got}")
            }
        }
    }
}

/// Replays a script on a machine of its own, on which nothing may be left when the runtime is gone.
#[must_use]
pub fn replay(script: &Script) -> Outcome {
    let machine = Machine::new(Config::default().capacity(script.total_memory));
    let _bound = machine.bind();
    let failed = |line, difference| Outcome::Failed { line, difference };
    let mut replay = match Replay::new(&script.conf) {
        Ok(replay) => replay,
        Err(error) => return failed(1, Difference::new("start", "a runtime", error)),
    };
    for line in &script.lines {
        if let Err(difference) = replay.step(line) {
            return failed(line.number, difference);
        }
    }
    let tolerated = std::mem::take(&mut replay.tolerated);
    drop(replay);
    let left = leftovers(&machine);
    if !left.is_empty() {
        let last = script.lines.last().map_or(1, |line| line.number);
        return failed(last, Difference::new("left on the machine", "nothing", left.join(", ")));
    }
    match tolerated {
        lines if lines.is_empty() => Outcome::Passed,
        lines => Outcome::PassedButForOrder(lines),
    }
}

/// A block that is handed out.
struct Live {
    address: u64,
    stream: i64,
    /// Other streams it was used on, and whether that was noted with a scope open.
    uses: BTreeMap<i64, bool>,
}

struct Replay {
    // Dropped in this order: what is open, what holds memory, the runtime, and at last the control.
    scopes: Vec<MemPoolGuard>,
    capture: Option<(u64, StreamGuard)>,
    graphs: BTreeMap<u64, CUDAGraph>,
    /// Pools of the graphs captured so far, dropped ones too.
    graph_pools: BTreeMap<u64, PoolId>,
    pools: BTreeMap<u64, MemPool>,
    live: BTreeMap<String, Live>,
    streams: BTreeMap<i64, Stream>,
    runtime: Runtime,
    control: Controlled,
    tolerated: Vec<usize>,
}

type Step<T = ()> = Result<T, Difference>;

impl Replay {
    fn new(conf: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let runtime = Runtime::new(driver()?);
        if !conf.is_empty() {
            runtime.memory().set_settings(conf)?;
        }
        let mut streams = BTreeMap::from([(0, runtime.streams().default(DEVICE)?)]);
        for number in OTHER_STREAMS {
            streams.insert(number, runtime.streams().pooled(DEVICE, 0)?);
        }
        Ok(Self {
            scopes: Vec::new(),
            capture: None,
            graphs: BTreeMap::new(),
            graph_pools: BTreeMap::new(),
            pools: BTreeMap::new(),
            live: BTreeMap::new(),
            streams,
            runtime,
            control: Controlled::new(),
            tolerated: Vec::new(),
        })
    }

    fn step(&mut self, line: &Line) -> Step {
        self.act(line)?;
        let asked = match line.action {
            Action::Driver(_) | Action::FreeCompleted { .. } | Action::Stats(_) | Action::Snapshot(_) => return Ok(()),
            Action::Alloc { .. } | Action::OutOfMemory { .. } => true,
            Action::Free { .. }
            | Action::RecordStream { .. }
            | Action::Synchronize
            | Action::EmptyCache
            | Action::ResetPeak
            | Action::MemoryFraction(_)
            | Action::EnterPool(_)
            | Action::LeavePool
            | Action::DropPool(_)
            | Action::CaptureBegin { .. }
            | Action::CaptureEnd
            | Action::DropGraph(_) => false,
        };
        let calls = self.control.with(|control| Some(control.end_operation(asked)));
        if let Some(Err(wrong)) = calls {
            return Err(Difference::new("driver calls", "those recorded", wrong));
        }
        let wrong = self.runtime.inconsistency();
        wrong.map_or(Ok(()), |wrong| Err(Difference::new("is_valid", "balanced books", wrong)))
    }

    fn act(&mut self, line: &Line) -> Step {
        match &line.action {
            Action::Driver(call) => {
                self.control.with(|control| control.list(*call));
                Ok(())
            }
            Action::FreeCompleted { address } => {
                self.control.with(|control| control.complete_block(*address));
                Ok(())
            }
            Action::Stats(expected) => self.compare_figures(line.number, expected),
            Action::Snapshot(expected) => self.compare_layout(expected),
            Action::Alloc { id, bytes, stream, address } => self.alloc(id, *bytes, *stream, *address),
            Action::OutOfMemory { bytes, stream } => self.out_of_memory(*bytes, *stream),
            Action::Free { id } => self.free(id),
            Action::RecordStream { id, stream } => self.record_stream(id, *stream),
            Action::Synchronize => {
                self.control.with(super::control::Control::complete_all);
                Ok(())
            }
            Action::EmptyCache => {
                self.control.with(super::control::Control::complete_all);
                self.runtime.memory().empty_cache().map_err(refused("empty_cache"))
            }
            Action::ResetPeak => {
                self.runtime.memory().reset_peak_stats(DEVICE).map_err(refused("reset_peak_memory_stats"))
            }
            Action::MemoryFraction(fraction) => self
                .runtime
                .memory()
                .set_fraction(*fraction, DEVICE)
                .map_err(refused("set_per_process_memory_fraction")),
            Action::EnterPool(pool) => self.enter_pool(*pool),
            Action::LeavePool => self.scopes.pop().map(drop).ok_or_else(|| unknown("pool to leave")),
            Action::DropPool(pool) => self.pools.remove(pool).map(drop).ok_or_else(|| unknown("pool to drop")),
            Action::CaptureBegin { graph, shared } => self.capture_begin(*graph, *shared),
            Action::CaptureEnd => self.capture_end(),
            Action::DropGraph(graph) => {
                let mut graph = self.graphs.remove(graph).ok_or_else(|| unknown("graph to drop"))?;
                graph.reset().map_err(refused("reset"))
            }
        }
    }

    fn alloc(&mut self, id: &str, bytes: u64, stream: i64, expected: u64) -> Step {
        let address = self.runtime.memory().alloc(bytes, self.stream(stream)?).map_err(refused("alloc"))?;
        let got = self.control.with(|control| control.recorded(address));
        if got != expected {
            return Err(Difference::new("address", hex(expected), hex(got)));
        }
        self.live.insert(id.to_owned(), Live { address, stream, uses: BTreeMap::new() });
        Ok(())
    }

    fn out_of_memory(&mut self, bytes: u64, stream: i64) -> Step {
        match self.runtime.memory().alloc(bytes, self.stream(stream)?) {
            Err(error) if error.is_out_of_memory() => Ok(()),
            Err(error) => Err(Difference::new("outcome", "oom", error)),
            Ok(address) => Err(Difference::new("outcome", "oom", hex(address))),
        }
    }

    fn free(&mut self, id: &str) -> Step {
        let live = self.live.remove(id).ok_or_else(|| unknown("block"))?;
        let scope = self.is_scoped();
        let handle = |stream: &i64| self.stream(*stream).map(Stream::cuda_stream);
        let streams = live.uses.keys().map(handle).collect::<Step<BTreeSet<_>>>()?;
        // Uses noted inside a scope are ordered by its end and get no event.
        let outside = live.uses.iter().filter(|(_, inside)| !**inside).map(|(stream, _)| stream);
        let events = outside.map(handle).collect::<Step<BTreeSet<_>>>()?;
        self.control.with(|control| control.begin_free(control.recorded(live.address), streams, events, scope));
        self.runtime.memory().free(live.address).map_err(refused("free"))
    }

    fn record_stream(&mut self, id: &str, stream: i64) -> Step {
        let (scope, user) = (self.is_scoped(), self.stream(stream)?.clone());
        let live = self.live.get_mut(id).ok_or_else(|| unknown("block"))?;
        if stream != live.stream {
            *live.uses.entry(stream).or_default() |= scope;
        }
        self.runtime.memory().record_stream(live.address, &user).map_err(refused("record_stream"))
    }

    fn is_scoped(&self) -> bool {
        self.capture.is_some() || !self.scopes.is_empty()
    }

    fn enter_pool(&mut self, number: u64) -> Step {
        if !self.pools.contains_key(&number) {
            self.pools.insert(
                number,
                self.runtime.mem_pools().create(MemPoolOptions::default()).map_err(refused("MemPool"))?,
            );
        }
        let pool = self.pools.get(&number).ok_or_else(|| unknown("pool"))?;
        self.scopes.push(self.runtime.mem_pools().enter(pool, DEVICE).map_err(refused("use_mem_pool"))?);
        Ok(())
    }

    fn capture_begin(&mut self, number: u64, shared: Option<u64>) -> Step {
        let pool_of = |graph| self.graph_pools.get(&graph).copied().ok_or_else(|| unknown("graph to share with"));
        let shared = shared.map(pool_of).transpose()?;
        let current = self.runtime.streams().guard(self.stream(CAPTURE_STREAM)?).map_err(refused("stream"))?;
        let mut graph = CUDAGraph::on(&self.runtime, false);
        graph.capture_begin(shared, CaptureMode::Relaxed).map_err(refused("capture_begin"))?;
        self.graphs.insert(number, graph);
        self.capture = Some((number, current));
        Ok(())
    }

    fn capture_end(&mut self) -> Step {
        let (number, _current) = self.capture.take().ok_or_else(|| unknown("capture"))?;
        let graph = self.graphs.get_mut(&number).ok_or_else(|| unknown("graph"))?;
        graph.capture_end().map_err(refused("capture_end"))?;
        self.graph_pools.insert(number, graph.pool().map_err(refused("pool"))?);
        Ok(())
    }

    fn stream(&self, number: i64) -> Step<&Stream> {
        self.streams.get(&number).ok_or_else(|| unknown("stream"))
    }

    fn compare_figures(&mut self, line: usize, expected: &BTreeMap<String, i64>) -> Step {
        let got = self.runtime.memory().stats(DEVICE).map_err(refused("memory_stats"))?;
        let got = got.flatten().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let differences = figures(expected, &got);
        let mixed = self.control.with(|control| control.is_mixed());
        if !differences.is_empty() && mixed && differences.iter().all(Difference::is_order_of_completion) {
            self.tolerated.push(line);
            return Ok(());
        }
        differences.into_iter().next().map_or(Ok(()), Err)
    }

    fn compare_layout(&mut self, expected: &[Segment]) -> Step {
        let found = self.runtime.memory().snapshot(None);
        let number = |handle: u64| {
            let same = |stream: &Stream| stream.cuda_stream() as u64 == handle;
            self.streams.iter().find(|(_, stream)| same(stream)).map_or(-1, |(number, _)| *number)
        };
        let mut got: Vec<Segment> = found
            .iter()
            .map(|segment| Segment {
                address: self.control.with(|control| control.recorded(segment.address)),
                total_size: segment.total_size,
                stream: number(segment.stream),
                class: segment.segment_type.name().to_owned(),
                blocks: segment
                    .blocks
                    .iter()
                    .map(|block| Block {
                        size: block.size,
                        state: block.state.name().to_owned(),
                        requested_size: block.requested_size,
                    })
                    .collect(),
            })
            .collect();
        // The recorder sorted by the text of the address.
        let mut expected = expected.to_vec();
        expected.sort_by_key(|segment| segment.address);
        got.sort_by_key(|segment| segment.address);
        segments(&expected, &got).map_or(Ok(()), Err)
    }
}

/// The difference that an error is.
fn refused(what: &'static str) -> impl Fn(Error) -> Difference {
    move |error| Difference::new(what, "success", error.to_string().lines().next().unwrap_or_default())
}

/// The difference that a script makes which names something it never made.
fn unknown(what: &'static str) -> Difference {
    Difference::new("script", format!("a {what}"), "none")
}
