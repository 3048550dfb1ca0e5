//! Scripts of allocations, frees, streams, captures, pools, options and driver failures on the runtime over the simulated
//! machine. Two threads make the steps, one after the other: what one allocates the other may give back.
//!
//! What must hold after every step: the allocator's books balance, it counts at least the bytes of the blocks that
//! are live as allocated and as requested, exactly those where nothing waits for a stream, and no two live blocks overlap. What must hold
//! at the end, with failures over: everything can be given back, and the machine then has no allocation left.
#![forbid(unsafe_code)]

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use c10_core::{
    CUDAGraph, CaptureMode, DeviceIndex, Error, MemPool, MemPoolGuard, MemPoolOptions, MemoryError, Runtime, Stream,
};
use cuda_sim::{Config, Fault, Machine};
use cuda_sys::CUresult;

use crate::input::Input;

/// Longest script: more steps say no more.
const STEPS_MAX: usize = 200;

/// Memory of the device: small, so that it is exhausted often.
const CAPACITY_BYTES: u64 = 256 << 20;

/// The only device.
const DEVICE: DeviceIndex = DeviceIndex(0);

/// Driver calls that may be made to fail, and how.
const FAILURES: [(&str, CUresult); 11] = [
    ("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuMemAlloc_v2", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuMemFree_v2", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuEventCreate", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuEventRecord", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuEventQuery", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuStreamEndCapture", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuGraphInstantiateWithFlags", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuMemCreate", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuMemMap", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuMemAddressReserve", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
];

/// Options that scripts switch to.
const OPTIONS: [&str; 6] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.3",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:40",
    "expandable_segments:True,max_split_size_mb:32,garbage_collection_threshold:0.5",
];

/// Most pools at a time.
const POOLS_MAX: usize = 3;

/// Runs one input.
///
/// # Errors
/// Books that do not balance, figures that differ, or memory that cannot be given back.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let mut input = Input::new(bytes);
    let config = Config::default().seed(u64::from(input.byte())).capacity(CAPACITY_BYTES);
    let machine = Machine::new(config.late_events(input.byte() & 1 != 0));
    let _bound = machine.bind();
    let runtime = Runtime::new(cuda_sim::driver().map_err(|error| error.to_string())?);
    let mut script = Script::new(runtime, machine.clone()).map_err(|error| format!("cannot begin: {error}"))?;
    for step in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        // A refused step is an answer like any other; what matters is the state it leaves behind.
        let _ = script.step(&mut input);
        script.check().map_err(|error| format!("after step {step}: {error}"))?;
    }
    script.finish()
}

/// A step that either thread can make.
enum Job {
    Alloc(u64, Stream),
    Free(u64),
    Record(u64, Stream),
}

/// Makes a step: the address of what was allocated, else 0.
fn perform(runtime: &Runtime, job: Job) -> Result<u64, Error> {
    match job {
        Job::Alloc(size, stream) => runtime.memory().alloc(size, &stream),
        Job::Free(address) => runtime.memory().free(address).map(|()| 0),
        Job::Record(address, stream) => runtime.memory().record_stream(address, &stream).map(|()| 0),
    }
}

/// The second thread.
struct Helper {
    jobs: SyncSender<Job>,
    answers: Receiver<Result<u64, Error>>,
    thread: JoinHandle<()>,
}

impl Helper {
    fn new(runtime: Runtime, machine: Machine) -> Self {
        let (jobs, to_do) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let _bound = machine.bind();
            // Dropped before the machine is unbound.
            let runtime = runtime;
            for job in to_do {
                if answer.send(perform(&runtime, job)).is_err() {
                    break;
                }
            }
        });
        Self { jobs, answers, thread }
    }

    fn perform(&self, job: Job) -> Result<u64, Error> {
        let sent = self.jobs.send(job).is_ok();
        self.answers.recv().ok().filter(|_| sent).expect("the other thread listens until it is ended")
    }

    fn end(self) -> Result<(), String> {
        drop(self.jobs);
        self.thread.join().map_err(|_| "the other thread panicked".to_owned())
    }
}

struct Script {
    runtime: Runtime,
    machine: Machine,
    helper: Helper,
    streams: Vec<Stream>,
    live: Vec<(u64, u64)>,
    graph: CUDAGraph,
    /// Scopes go before the pools they route to.
    scopes: Vec<MemPoolGuard>,
    pools: Vec<MemPool>,
}

impl Script {
    fn new(runtime: Runtime, machine: Machine) -> Result<Self, Error> {
        let mut streams = vec![runtime.streams().default(DEVICE)?];
        for _ in 0..3 {
            streams.push(runtime.streams().pooled(DEVICE, 0)?);
        }
        let graph = CUDAGraph::on(&runtime, false);
        let helper = Helper::new(runtime.clone(), machine.clone());
        let (live, scopes, pools) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { runtime, machine, helper, streams, live, graph, scopes, pools })
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let kind = input.byte() % 20;
        // From 15 on by the other thread.
        match kind {
            0..=3 | 15 => self.alloc(input, kind == 15),
            4 | 5 | 16..=18 => self.free(input, kind >= 16),
            6 | 19 => self.record_stream(input, kind == 19),
            7 => self.stream(input).synchronize(),
            8 => self.runtime.memory().empty_cache(),
            9 => self.capture(input),
            10 => {
                let (call, code) = FAILURES[input.position(FAILURES.len())];
                self.machine.inject(Fault { call, occurrence: u64::from(input.byte() % 4) + 1, code });
                Ok(())
            }
            11 => self.runtime.synchronize(DEVICE),
            12 => self.make_or_drop_pool(input),
            13 => self.enter_or_leave_pool(input),
            _ => self.configure(input),
        }
    }

    fn stream(&self, input: &mut Input<'_>) -> Stream {
        self.streams[input.position(self.streams.len())].clone()
    }

    fn perform(&self, job: Job, elsewhere: bool) -> Result<u64, Error> {
        if elsewhere { self.helper.perform(job) } else { perform(&self.runtime, job) }
    }

    fn alloc(&mut self, input: &mut Input<'_>, elsewhere: bool) -> Result<(), Error> {
        let (size, stream) = (input.size() as u64, self.stream(input));
        let address = self.perform(Job::Alloc(size, stream), elsewhere)?;
        if address != 0 {
            self.live.push((address, size));
        }
        Ok(())
    }

    fn free(&mut self, input: &mut Input<'_>, elsewhere: bool) -> Result<(), Error> {
        let at = input.position(self.live.len());
        if at < self.live.len() {
            let (address, _) = self.live.swap_remove(at);
            return self.perform(Job::Free(address), elsewhere).map(|_| ());
        }
        match self.perform(Job::Free(0x3039), elsewhere) {
            Err(Error::Memory(MemoryError::InvalidPointer { address: 0x3039 })) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn record_stream(&mut self, input: &mut Input<'_>, elsewhere: bool) -> Result<(), Error> {
        let (at, stream) = (input.position(self.live.len()), self.stream(input));
        let address = self.live.get(at).map_or(0x3039, |(address, _)| *address);
        self.perform(Job::Record(address, stream), elsewhere).map(|_| ())
    }

    fn make_or_drop_pool(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let options = input.byte();
        if options & 4 != 0 || self.pools.len() == POOLS_MAX {
            let at = input.position(self.pools.len());
            // It may be dropped while it is entered.
            drop((at < self.pools.len()).then(|| self.pools.swap_remove(at)));
            return Ok(());
        }
        let elastic = (options & 8 != 0).then_some(options & 16 != 0);
        let options = MemPoolOptions { use_on_oom: options & 1 != 0, no_split: options & 2 != 0, elastic };
        self.pools.push(self.runtime.mem_pools().create(options)?);
        Ok(())
    }

    fn enter_or_leave_pool(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let at = input.position(2 * POOLS_MAX);
        if let Some(pool) = self.pools.get(at) {
            self.scopes.push(self.runtime.mem_pools().enter(pool, DEVICE)?);
        } else if !self.scopes.is_empty() {
            drop(self.scopes.swap_remove(at % self.scopes.len()));
        }
        Ok(())
    }

    fn configure(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let (what, of) = (input.byte(), input.position(OPTIONS.len()));
        match what % 4 {
            0 | 1 => self.runtime.memory().set_settings(OPTIONS[of]),
            2 => self.runtime.memory().set_fraction([1.0, 0.75, 0.5, 0.25][of % 4], DEVICE),
            _ => self.runtime.memory().reset_peak_stats(DEVICE),
        }
    }

    fn capture(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let _current = self.runtime.streams().guard(&self.streams[1])?;
        match input.byte() % 4 {
            0 | 1 if !self.graph.is_capturing() => {
                let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
                self.graph.capture_begin(None, modes[input.position(modes.len())])
            }
            2 => self.graph.reset(),
            3 if !self.graph.is_capturing() => self.graph.replay(),
            _ => self.graph.capture_end(),
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(fault) = self.runtime.inconsistency() {
            return Err(fault);
        }
        let stats = self.runtime.memory().stats(DEVICE).map_err(|error| error.to_string())?;
        let live: u64 = self.live.iter().map(|(_, size)| size).sum();
        let live = i64::try_from(live).map_err(|error| error.to_string())?;
        let (requested, allocated) = (stats.requested_bytes.all.current, stats.allocated_bytes.all.current);
        // A block that was freed and waits for a stream is no longer allocated, but still active and requested.
        let waiting = stats.active_bytes.all.current - allocated;
        if allocated < live || requested < live || (waiting == 0 && requested != live) {
            return Err(format!("{requested} bytes count as requested, {allocated} as allocated; {live} are live"));
        }
        let mut addresses: Vec<(u64, u64)> = self.live.clone();
        addresses.sort_unstable();
        match addresses.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            Some(pair) => Err(format!("two live blocks overlap: {pair:x?}")),
            None => Ok(()),
        }
    }

    /// Gives everything back, with no more failures injected.
    fn finish(mut self) -> Result<(), String> {
        self.machine.clear_faults();
        let give_back = |script: &mut Self| -> Result<(), Error> {
            if script.graph.is_capturing() {
                let _current = script.runtime.streams().guard(&script.streams[1])?;
                // The capture may have been spoiled by what was done during it; that it ends is what counts.
                let _ = script.graph.capture_end();
            }
            script.graph.reset()?;
            script.scopes.clear();
            script.pools.clear();
            for (address, _) in std::mem::take(&mut script.live) {
                script.runtime.memory().free(address)?;
            }
            script.runtime.synchronize(DEVICE)?;
            script.runtime.memory().empty_cache()
        };
        give_back(&mut self).map_err(|error| format!("cannot give everything back: {error}"))?;
        self.check()?;
        let stats = self.runtime.memory().stats(DEVICE).map_err(|error| error.to_string())?;
        let (reserved, live) = (stats.reserved_bytes.all.current, self.machine.live());
        if (reserved, live.allocations, live.memory_handles) != (0, 0, 0) {
            let on = format!("{} allocations and {} handles of memory live on", live.allocations, live.memory_handles);
            return Err(format!("{reserved} bytes stay reserved, {on}"));
        }
        // A range of addresses may stay for requests to come, until the runtime ends.
        let Self { runtime, machine, helper, streams, graph, .. } = self;
        helper.end()?;
        drop((streams, graph, runtime));
        match machine.live().reservations {
            0 => Ok(()),
            ranges => Err(format!("{ranges} address ranges outlive the runtime")),
        }
    }
}
