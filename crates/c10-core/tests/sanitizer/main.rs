//! The stream sanitizer against the order of work that the simulated machine knows, and against torch's rules written down
//! plainly.
//!
//! # Safety
//! The kernel that is launched does nothing. Buffers are made over memory that is freed while they are used: the simulated
//! machine keeps it mapped, and what is written there by and by is nobody's.
#![expect(unsafe_code, reason = "launches of a kernel that does nothing, and memory that is used after it was freed")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod torch;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use c10_core::{
    AccessType, Arg, CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Event, EventOptions, Kernel, Module,
    PinnedBuffer, Runtime, Sanitizer, SanitizerAction, SanitizerMode, SanitizerOptions, Stream, TraceAccess,
    TraceEvent, TraceKinds, UnsynchronizedAccessError, construct_storage_from_data_pointer,
};
use testkit::{Config, JournalEntry, Machine, QueuedWork, Simulation, WorkKind};

use torch::Torch;

const NOTHING: &str = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
const DEVICES: i32 = 2;
/// Bytes of a buffer.
const LEN: usize = 4096;
/// Ranges begin and end at multiples of this.
const STEP: usize = 512;

/// Two accesses: number and kind of each, the first byte that both use, and how many; 0 by torch's rules.
type Found = (u64, bool, u64, bool, u64, u64);

fn found(error: &UnsynchronizedAccessError) -> Found {
    let of = |access: &c10_core::SanitizedAccess| (access.seq_num, access.access_type == AccessType::WRITE);
    let ((current, writes), (previous, wrote)) = (of(&error.current_access), of(&error.previous_access));
    (current, writes, previous, wrote, error.data_ptr, error.bytes.unwrap_or(0))
}

fn sorted(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_unstable();
    found
}

// --- The truth: the closure of what the machine says comes after what.

/// Numbers of work.
#[derive(Clone, Default, Debug)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

/// A piece of work that uses memory: what comes before it, and what it uses.
#[derive(Clone, Default)]
struct Node {
    seq: u64,
    before: Set,
    uses: Vec<(Range<u64>, bool)>,
}

/// Every pair of accesses to common bytes of which one writes and that is not in order, but for bytes where the earlier one
/// is followed, in order, by one that conflicts with all that it conflicts with.
fn races(nodes: &[Node]) -> Vec<Found> {
    let list: Vec<(usize, &Range<u64>, bool)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(number, node)| node.uses.iter().map(move |(range, is_write)| (number, range, *is_write)))
        .collect();
    let comes_before = |first: usize, second: usize| first == second || nodes[second].before.has(first);
    let mut found = Vec::new();
    for (position, &(current, range, is_write)) in list.iter().enumerate() {
        for (earlier, &(previous, other, wrote)) in list[..position].iter().enumerate() {
            if !(is_write || wrote) || comes_before(previous, current) {
                continue;
            }
            let common = range.start.max(other.start)..range.end.min(other.end);
            let hides = |at: u64| {
                list[earlier + 1..position].iter().any(|&(between, bytes, is_strong)| {
                    (is_strong || !wrote) && bytes.contains(&at) && comes_before(previous, between)
                })
            };
            // All ranges begin and end at multiples of a step, counted from where the first begins.
            let step = STEP as u64;
            let left: Vec<u64> = common.clone().step_by(STEP).filter(|at| !hides(*at)).collect();
            if let Some(first) = left.first() {
                let bytes = left.iter().map(|at| step.min(common.end - at)).sum();
                found.push((nodes[current].seq, is_write, nodes[previous].seq, wrote, *first, bytes));
            }
        }
    }
    found
}

/// What is known of the machine's work.
#[derive(Default)]
struct Truth {
    nodes: Vec<Node>,
    /// What comes before, and with, each piece of work of the machine.
    closures: BTreeMap<u64, Set>,
    /// What a thread of the host knows to be done.
    known: BTreeMap<u64, Set>,
    separate_threads: bool,
    seq: u64,
    graphs: Vec<Vec<Node>>,
    /// The graphs that were looked into.
    known_graphs: BTreeSet<usize>,
    in_graphs: Vec<Found>,
}

/// What a step of a program did, in order.
enum Did {
    Work(Vec<TraceAccess>),
    Replay,
}

fn grouped(events: &[TraceEvent]) -> Vec<Did> {
    let (mut did, mut begun) = (Vec::new(), Vec::new());
    for event in events {
        if let TraceEvent::Accessed(access) = *event {
            begun.push(access);
            if access.rest == 0 {
                did.push(Did::Work(std::mem::take(&mut begun)));
            }
        } else if let TraceEvent::GraphReplayed { .. } = event {
            did.push(Did::Replay);
        }
    }
    did
}

fn uses(accesses: &[TraceAccess]) -> Vec<(Range<u64>, bool)> {
    accesses.iter().map(|access| (access.address..access.address + access.size, access.is_write)).collect()
}

impl Truth {
    fn thread(&self, thread: u64) -> u64 {
        if self.separate_threads { thread } else { 0 }
    }

    /// A graph was captured.
    fn captured(&mut self, events: &[TraceEvent]) {
        let mut nodes = Vec::new();
        for did in grouped(events) {
            if let Did::Work(accesses) = did {
                self.seq += 1;
                nodes.push(Node { seq: self.seq, before: Set::default(), uses: uses(&accesses) });
            }
        }
        self.graphs.push(nodes);
    }

    /// A thread did something.
    fn step(&mut self, thread: u64, events: &[TraceEvent], journal: &[JournalEntry], graph: Option<usize>) {
        let begins: BTreeSet<u64> = journal
            .iter()
            .filter_map(|entry| if let JournalEntry::Queued(work) = entry { work.part_of } else { None })
            .collect();
        let (on_host, mut queued): (Vec<_>, Vec<_>) = grouped(events)
            .into_iter()
            .partition(|did| matches!(did, Did::Work(accesses) if accesses[0].stream.is_none()));
        queued.reverse();
        let mut parts: Vec<&QueuedWork> = Vec::new();
        for entry in journal {
            match entry {
                JournalEntry::Seen { thread, work } => {
                    let mut seen = Set::default();
                    work.iter().filter_map(|work| self.closures.get(work)).for_each(|set| seen.join(set));
                    self.known.entry(self.thread(*thread)).or_default().join(&seen);
                }
                JournalEntry::Queued(work) => {
                    let mut before = Set::default();
                    work.after.iter().filter_map(|id| self.closures.get(id)).for_each(|set| before.join(set));
                    if let Some(known) = self.known.get(&self.thread(work.thread)) {
                        before.join(known);
                    }
                    let mut closure = before.clone();
                    let is_work = matches!(work.kind, WorkKind::Copy | WorkKind::Fill | WorkKind::Launch);
                    if work.part_of.is_some() {
                        parts.extend(is_work.then_some(work));
                    } else if is_work || begins.contains(&work.id) {
                        self.seq += 1;
                        let uses = match queued.pop().expect("what is queued was told") {
                            Did::Work(accesses) => {
                                check_writes(work, &accesses);
                                uses(&accesses)
                            }
                            Did::Replay => {
                                let nodes = &self.graphs[graph.expect("the step replays a graph")];
                                nodes.iter().flat_map(|node| node.uses.clone()).collect()
                            }
                        };
                        closure.insert(self.nodes.len());
                        self.nodes.push(Node { seq: self.seq, before, uses });
                    }
                    self.closures.insert(work.id, closure);
                }
            }
        }
        assert!(queued.is_empty(), "what was told was queued");
        if let Some(graph) = graph {
            self.look_into(graph, &parts, journal);
        }
        for did in on_host {
            let Did::Work(accesses) = did else { continue };
            self.seq += 1;
            let thread = self.thread(thread);
            let before = self.known.get(&thread).cloned().unwrap_or_default();
            self.known.entry(thread).or_default().insert(self.nodes.len());
            self.nodes.push(Node { seq: self.seq, before, uses: uses(&accesses) });
        }
    }

    /// The order inside of a graph follows from its first launch.
    fn look_into(&mut self, graph: usize, parts: &[&QueuedWork], journal: &[JournalEntry]) {
        let nodes = &mut self.graphs[graph];
        assert_eq!(parts.len(), nodes.len(), "each node is launched");
        if !self.known_graphs.insert(graph) {
            return;
        }
        let place = |id: u64| parts.iter().position(|part| part.id == id);
        let mut closures: BTreeMap<u64, Set> = BTreeMap::new();
        for entry in journal {
            let JournalEntry::Queued(work) = entry else { continue };
            let mut before = Set::default();
            work.after.iter().filter_map(|id| closures.get(id)).for_each(|set| before.join(set));
            if let Some(place) = place(work.id) {
                nodes[place].before = before.clone();
                before.insert(place);
            }
            closures.insert(work.id, before);
        }
        let found = races(nodes);
        self.in_graphs.extend(found);
    }
}

/// The machine writes where the runtime says.
fn check_writes(work: &QueuedWork, accesses: &[TraceAccess]) {
    if work.kind != WorkKind::Launch {
        let told = accesses.iter().filter(|access| access.is_write);
        let told: Vec<_> = told.map(|access| (access.address, access.size)).collect();
        // What a copy writes to memory of the program is not told.
        assert!(told.is_empty() || work.writes == told, "{work:?}: {told:?}");
    }
}

// --- Programs.

struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    fn range(&mut self) -> Range<usize> {
        let first = self.below(LEN / STEP);
        let last = first + 1 + self.below(LEN / STEP - first);
        first * STEP..last * STEP
    }
}

fn index(device: usize) -> DeviceIndex {
    DeviceIndex(i32::try_from(device).unwrap())
}

/// What a program has.
struct Program {
    rng: Rng,
    runtime: Runtime,
    streams: Vec<Vec<Stream>>,
    buffers: Vec<Vec<DeviceBuffer>>,
    /// Memory that is freed without regard to who uses it, with buffers on it.
    raw: Vec<u64>,
    pinned: Vec<PinnedBuffer>,
    events: Vec<Event>,
    kernels: Vec<Kernel>,
    graphs: Vec<CUDAGraph>,
    /// How many of the graphs were launched.
    launched: usize,
    sanitizer: Sanitizer,
    handed: Option<c10_core::HandOver>,
}

/// What the judge of a step has to know of it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Captures,
    Replays(usize),
    HandsOver,
    TakesOver,
}

impl Program {
    fn new(seed: u64, runtime: &Runtime, sanitizer: Sanitizer) -> Self {
        let of_devices = || (0..DEVICES).map(DeviceIndex);
        let streams: Vec<Vec<Stream>> = of_devices()
            .map(|device| {
                let pooled = (0..3).map(|_| runtime.streams().pooled(device, 0).unwrap());
                pooled.chain([runtime.streams().default(device).unwrap()]).collect()
            })
            .collect();
        let buffer = |stream: &Stream| runtime.memory().buffer(LEN, stream).unwrap();
        let kernel = |device| Module::from_ptx(runtime, device, NOTHING).unwrap().kernel("nothing").unwrap();
        Self {
            rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            runtime: runtime.clone(),
            buffers: streams.iter().map(|of| of[..3].iter().map(buffer).collect()).collect(),
            streams,
            raw: Vec::new(),
            pinned: (0..2).map(|_| runtime.pinned().buffer(LEN).unwrap()).collect(),
            events: (0..4).map(|_| Event::new(EventOptions::default())).collect(),
            kernels: of_devices().map(kernel).collect(),
            graphs: Vec::new(),
            launched: 0,
            sanitizer,
            handed: None,
        }
    }

    fn step(&mut self) -> Kind {
        if self.graphs.len() > self.launched {
            // The order inside of a graph shows when it is launched.
            return self.replay(self.launched);
        }
        let device = self.rng.below(DEVICES as usize);
        let stream = self.rng.of(&self.streams[device]).clone();
        let buffer = self.rng.of(&self.buffers[device]).clone();
        match self.rng.below(44) {
            0..8 => buffer.fill(self.rng.range(), 1, &stream).unwrap(),
            8..13 => self.copy(device, &buffer, &stream),
            13..19 => self.launch(device, &stream),
            19..22 => self.copy_pinned(&buffer, &stream),
            22 => self.use_on_host(),
            23..34 => self.order(device, &stream),
            34..38 => self.change_memory(device, &stream),
            38 => {
                let range = self.rng.range();
                buffer.copy_from_slice(range.start, &vec![0; range.len()]).unwrap();
            }
            39 => {
                let range = self.rng.range();
                buffer.copy_to_slice(range.start, &mut vec![0; range.len()]).unwrap();
            }
            40 if self.graphs.len() < 3 => return self.capture(),
            40 | 41 if !self.graphs.is_empty() => {
                let graph = self.rng.below(self.graphs.len());
                return self.replay(graph);
            }
            42 => {
                self.handed = Some(self.sanitizer.hand_over());
                return Kind::HandsOver;
            }
            _ => {
                if let Some(handed) = self.handed.take() {
                    self.sanitizer.take_over(&handed);
                    return Kind::TakesOver;
                }
            }
        }
        Kind::Plain
    }

    fn copy(&mut self, device: usize, to: &DeviceBuffer, stream: &Stream) {
        let other = if self.rng.below(4) == 0 { 1 - device } else { device };
        let from = self.rng.of(&self.buffers[other]).clone();
        let range = self.rng.range();
        if from.address() != to.address() {
            to.copy_from_buffer(range.start, &from, range, stream).unwrap();
        }
    }

    fn launch(&mut self, device: usize, stream: &Stream) {
        let kernel = self.kernels[device].clone();
        let buffers = self.buffers[device].clone();
        let mut launch = kernel.launch_builder(stream);
        for _ in 0..1 + self.rng.below(3) {
            let used = Arg::range(self.rng.of(&buffers), self.rng.range());
            launch = if self.rng.below(2) == 0 { launch.reads(used) } else { launch.writes(used) };
        }
        // SAFETY: the kernel does nothing.
        unsafe { launch.launch() }.unwrap();
    }

    fn copy_pinned(&mut self, buffer: &DeviceBuffer, stream: &Stream) {
        let (pinned, range) = (self.rng.below(2), self.rng.range());
        let pinned = &self.pinned[pinned];
        if self.rng.below(2) == 0 {
            buffer.copy_from_pinned(range.start, pinned, range, stream).unwrap();
        } else {
            buffer.copy_to_pinned(range.clone(), pinned, range.start, stream).unwrap();
        }
    }

    fn use_on_host(&mut self) {
        let (pinned, range) = (self.rng.below(2), self.rng.range());
        let pinned = &self.pinned[pinned];
        if self.rng.below(2) == 0 {
            pinned.write(range.start, &vec![3; range.len()]).unwrap();
        } else {
            pinned.read(range.start, &mut vec![0; range.len()]).unwrap();
        }
    }

    fn order(&mut self, device: usize, stream: &Stream) {
        let event = device * 2 + self.rng.below(2);
        match self.rng.below(12) {
            0..3 => self.events[event].record(stream).unwrap(),
            3..6 => {
                let event = self.rng.below(4);
                self.events[event].wait(stream).unwrap();
            }
            6 => self.events[event].synchronize().unwrap(),
            7 => drop(self.events[event].query().unwrap()),
            8 => stream.synchronize().unwrap(),
            9 => drop(stream.query().unwrap()),
            10 => {
                let other = self.rng.of(&self.streams[device]).clone();
                stream.wait_stream(&other).unwrap();
            }
            _ if self.rng.below(3) == 0 => self.runtime.synchronize(index(device)).unwrap(),
            _ => self.events[event] = Event::new(EventOptions::default()),
        }
    }

    fn change_memory(&mut self, device: usize, stream: &Stream) {
        let place = self.rng.below(3);
        match self.rng.below(4) {
            0 => self.buffers[device][place] = self.runtime.memory().buffer(LEN, stream).unwrap(),
            1 => {
                let pinned = self.rng.below(2);
                self.pinned[pinned] = self.runtime.pinned().buffer(LEN).unwrap();
            }
            2 if !self.raw.is_empty() => {
                let address = self.raw.swap_remove(0);
                self.runtime.memory().free(address).unwrap();
            }
            _ => {
                let address = self.runtime.memory().alloc(LEN as u64 + 512, stream).unwrap();
                self.raw.push(address);
                // SAFETY: the machine keeps the memory mapped. The allocator does not know the address of the buffer, and
                // does not wait for streams that use it.
                let inner = unsafe { construct_storage_from_data_pointer(address + 512, index(device), LEN) };
                self.buffers[device][place] = inner.unwrap();
            }
        }
    }

    /// Work on two streams, with or without order between them.
    fn capture(&mut self) -> Kind {
        let (first, second) = (self.streams[0][0].clone(), self.streams[0][1].clone());
        let buffers = self.buffers[0].clone();
        let kernel = self.kernels[0].clone();
        let mut graph = CUDAGraph::on(&self.runtime, false);
        let rng = &mut self.rng;
        graph
            .capture(&first, None, CaptureMode::ThreadLocal, || {
                buffers[rng.below(3)].fill(rng.range(), 1, &first)?;
                second.wait_stream(&first)?;
                for _ in 0..rng.below(4) {
                    let stream = if rng.below(2) == 0 { &first } else { &second };
                    match rng.below(3) {
                        0 => buffers[rng.below(3)].fill(rng.range(), 2, stream)?,
                        1 => {
                            let used = Arg::range(&buffers[rng.below(3)], rng.range());
                            // SAFETY: the kernel does nothing.
                            unsafe { kernel.launch_builder(stream).reads(used).launch() }?;
                        }
                        _ => second.wait_stream(&first)?,
                    }
                }
                first.wait_stream(&second)
            })
            .unwrap();
        self.graphs.push(graph);
        Kind::Captures
    }

    fn replay(&mut self, graph: usize) -> Kind {
        self.launched = self.launched.max(graph + 1);
        let stream = self.rng.of(&self.streams[0]).clone();
        let _current = self.runtime.streams().guard(&stream).unwrap();
        self.graphs[graph].replay().unwrap();
        Kind::Replays(graph)
    }
}

/// Runs programs on several threads, one at a time, and compares.
struct Judge {
    machine: Machine,
    events: Arc<Mutex<Vec<TraceEvent>>>,
    truth: Truth,
    torch: Torch,
    handed: Option<Set>,
}

impl Judge {
    /// The number of the thread that has waited for a stream.
    fn greeted(&mut self) -> u64 {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        events.iter().for_each(|event| self.torch.observe(event));
        let numbers = self.machine.take_journal().into_iter().find_map(|entry| match entry {
            JournalEntry::Seen { thread, .. } => Some(thread),
            JournalEntry::Queued(_) => None,
        });
        numbers.expect("the wait is noted")
    }

    /// What happened since it was asked last.
    fn look(&mut self, thread: u64, kind: Kind) {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        let journal = self.machine.take_journal();
        events.iter().for_each(|event| self.torch.observe(event));
        match kind {
            Kind::Captures => {
                self.truth.captured(&events);
                self.truth.step(thread, &[], &journal, None);
            }
            Kind::Replays(graph) => self.truth.step(thread, &events, &journal, Some(graph)),
            Kind::Plain | Kind::HandsOver | Kind::TakesOver => self.truth.step(thread, &events, &journal, None),
        }
        let thread = self.truth.thread(thread);
        if kind == Kind::HandsOver {
            self.handed = Some(self.truth.known.get(&thread).cloned().unwrap_or_default());
        }
        if kind == Kind::TakesOver {
            let handed = self.handed.take().expect("something was handed over");
            self.truth.known.entry(thread).or_default().join(&handed);
        }
    }
}

fn options(mode: SanitizerMode, separate_threads: bool) -> SanitizerOptions {
    SanitizerOptions { mode, action: SanitizerAction::Collect, stacks: false, separate_threads }
}

/// A thread that does a step whenever it is asked.
fn work(simulation: &Simulation, program: &Mutex<Option<Program>>, asked: &Receiver<()>, done: &Sender<Kind>) {
    let _here = simulation.enter();
    if asked.recv().is_ok() {
        // The journal tells this thread's number.
        simulation.runtime().streams().default(DeviceIndex(0)).unwrap().synchronize().unwrap();
        done.send(Kind::Plain).unwrap();
    }
    while asked.recv().is_ok() {
        let kind = program.lock().unwrap().as_mut().unwrap().step();
        done.send(kind).unwrap();
    }
}

/// Runs a program; how many races there were by each of the rules.
fn run(seed: u64) -> [usize; 2] {
    let separate_threads = seed % 4 == 3;
    let threads = if separate_threads { 2 } else { 1 + usize::from(seed % 2 == 1) };
    let simulation = Simulation::new(Config::default().devices(DEVICES as u32).seed(seed));
    let _here = simulation.enter();
    let (runtime, machine) = (simulation.runtime().clone(), simulation.machine().clone());
    machine.keep_journal();
    let events: Arc<Mutex<Vec<TraceEvent>>> = Arc::default();
    let told = Arc::clone(&events);
    runtime.subscribe(TraceKinds::ALL, move |event| told.lock().unwrap().push(*event));
    let ranges = runtime.enable_sanitizer(options(SanitizerMode::Ranges, separate_threads));
    let tensors = runtime.enable_sanitizer(options(SanitizerMode::Tensors, false));
    let mut judge = Judge {
        machine,
        events,
        truth: Truth { separate_threads, ..Truth::default() },
        torch: Torch::default(),
        handed: None,
    };
    let program = Mutex::new(Some(Program::new(seed, &runtime, ranges.clone())));
    judge.look(0, Kind::Plain);
    std::thread::scope(|scope| {
        let (done, answers) = channel();
        let workers: Vec<Sender<()>> = (0..threads)
            .map(|_| {
                let (ask, asked) = channel();
                let (simulation, program, done) = (&simulation, &program, done.clone());
                scope.spawn(move || work(simulation, program, &asked, &done));
                ask
            })
            .collect();
        let mut greet = |worker: &Sender<()>| {
            worker.send(()).unwrap();
            answers.recv().unwrap();
            judge.greeted()
        };
        let numbers: Vec<u64> = workers.iter().map(&mut greet).collect();
        let mut rng = Rng(seed ^ 0x5EED);
        let (mut steps, mut kind) = (0, Kind::Plain);
        while steps < 70 || kind == Kind::Captures {
            steps += 1;
            let worker = rng.below(threads);
            workers[worker].send(()).unwrap();
            kind = answers.recv().unwrap();
            judge.look(numbers[worker], kind);
        }
    });
    drop(program.into_inner().unwrap());
    let errors = ranges.take_errors();
    let truth = [races(&judge.truth.nodes), judge.truth.in_graphs].concat();
    assert_eq!(sorted(errors.iter().map(found).collect()), sorted(truth), "seed {seed}: by ranges");
    let by_torch = tensors.take_errors();
    assert_eq!(sorted(by_torch.iter().map(found).collect()), sorted(judge.torch.found), "seed {seed}: by tensors");
    [errors.len(), by_torch.len()]
}

fn run_all(seeds: Range<u64>) {
    let mut races = [0; 2];
    for seed in seeds {
        let found = run(seed);
        races.iter_mut().zip(found).for_each(|(all, found)| *all += found);
    }
    assert!(races.iter().all(|&races| races > 1000), "programs race: {races:?}");
}

#[test]
fn reports_equal_the_order_that_the_machine_knows() {
    run_all(0..250);
}

#[test]
fn reports_equal_it_for_other_programs() {
    run_all(250..500);
}

#[test]
fn reports_equal_it_for_more_programs() {
    run_all(500..750);
}

#[test]
fn reports_equal_it_for_the_last_programs() {
    run_all(750..1000);
}

/// Work of two streams on one buffer, and what is found of it by torch's rules and by bytes.
fn two_streams(between: impl FnOnce(&Simulation, &Stream, &Stream)) -> [usize; 2] {
    let simulation = Simulation::new(Config::default());
    let _here = simulation.enter();
    let runtime = simulation.runtime();
    let [first, second] = [0, 0].map(|device| runtime.streams().pooled(DeviceIndex(device), 0).unwrap());
    let by_tensors = runtime.enable_sanitizer(options(SanitizerMode::Tensors, false));
    let by_ranges = runtime.enable_sanitizer(options(SanitizerMode::Ranges, false));
    let buffer = runtime.memory().buffer(LEN, &first).unwrap();
    buffer.fill(.., 1, &first).unwrap();
    between(&simulation, &first, &second);
    buffer.fill(.., 2, &second).unwrap();
    assert_eq!([by_tensors.count(), by_ranges.count()].map(|count| count > 1), [false; 2]);
    [by_tensors, by_ranges].map(|sanitizer| sanitizer.take_errors().len())
}

#[test]
fn what_the_host_was_told_counts_by_bytes() {
    assert_eq!(two_streams(|_, _, _| ()), [1, 1]);
    assert_eq!(two_streams(|_, first, second| second.wait_stream(first).unwrap()), [0, 0]);
    assert_eq!(two_streams(|_, first, _| first.synchronize().unwrap()), [0, 0]);
    // Torch has no hook for a question.
    let asks = |simulation: &Simulation, first: &Stream, _: &Stream| {
        simulation.machine().settle();
        assert!(first.query().unwrap());
    };
    assert_eq!(two_streams(asks), [1, 0]);
}

#[test]
fn a_race_is_raised_with_a_report_that_says_where() {
    let simulation = Simulation::new(Config::default());
    let _here = simulation.enter();
    let runtime = simulation.runtime();
    let (buffer, other) = (DeviceBuffer::new(LEN, 0).unwrap(), runtime.streams().pooled(DeviceIndex(0), 0).unwrap());
    let sanitizer = runtime.enable_sanitizer(SanitizerOptions::default());
    buffer.fill(.., 1, None).unwrap();
    let raised = buffer.fill(.., 2, &other).unwrap_err();
    let c10_core::Error::Sanitizer(errors) = raised else { panic!("{raised:?}") };
    let text = errors.errors[0].to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "=".repeat(28));
    assert_eq!(
        lines[1],
        format!("CSAN detected a possible data race on tensor with data pointer {}", buffer.address())
    );
    assert_eq!(lines[2], format!("Access by stream {} during kernel:", other.cuda_stream()));
    assert_eq!(lines[3..6], ["fill", "writing to the output", "With stack trace:"]);
    assert!(
        text.contains("in a_race_is_raised_with_a_report_that_says_where") || text.contains("sanitizer::a_race"),
        "{text}"
    );
    assert!(text.ends_with("Trace for tensor allocation not found."), "the buffer was there before");
    let of_libraries =
        ["in c10_core::", "in <c10_core::", "in std::", "in core::", "in test::", "in __libc", "in clone"];
    for part in of_libraries {
        assert!(!text.contains(part), "{part} is left out:\n{text}");
    }
    assert!(sanitizer.disable() && !sanitizer.disable());
    buffer.fill(.., 3, &other).unwrap();
    assert_eq!(sanitizer.count(), 1);
}

#[test]
fn counting_keeps_nothing() {
    let simulation = Simulation::new(Config::default());
    let _here = simulation.enter();
    let runtime = simulation.runtime();
    let counts = SanitizerOptions { action: SanitizerAction::Count, ..SanitizerOptions::ranges() };
    let (sanitizer, pinned) = (runtime.enable_sanitizer(counts), runtime.pinned().buffer(LEN).unwrap());
    let (buffer, other) = (DeviceBuffer::new(LEN, 0).unwrap(), runtime.streams().pooled(DeviceIndex(0), 0).unwrap());
    buffer.copy_from_pinned(0, &pinned, .., &other).unwrap();
    pinned.write(0, &[1]).unwrap();
    buffer.fill(..1, 2, None).unwrap();
    assert_eq!((sanitizer.count(), sanitizer.take_errors().len()), (2, 0));
}

/// The environment is read when a runtime is made.
#[test]
fn the_environment_switches_it_on() {
    testkit::with_environment("the_environment_switches_it_on", &[("TORCH_CUDA_SANITIZER", "0")], || {
        let simulation = Simulation::new(Config::default());
        let _here = simulation.enter();
        let other = simulation.runtime().streams().pooled(DeviceIndex(0), 0).unwrap();
        let buffer = DeviceBuffer::new(LEN, 0).unwrap();
        buffer.fill(.., 1, None).unwrap();
        assert!(buffer.fill(.., 2, &other).is_err());
    });
}
