//! A graph that is ready to run: kernels with their operands, and where each operand is.
//!
//! **Invariants:** a plan holds no memory but what the traced function had kept. It runs its steps in their order, each on
//! the stream that it was traced on, where steps of the stream of the call follow the call.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use c10_core::{Device, DeviceBuffer, Runtime, Stream};
use kernel_ir::Program;
use kernel_ir::reduce::Reduction;
use smallvec::SmallVec;

use super::expression::Expression;
use super::fuse::{Fusion, Kept};
use super::graph::{Graph, Home, Node, NodeId, SlotId, View};
use super::lower::{self, Body, Lowered};
use super::memory::{Arena, Need};
use crate::base::error::{Result, TensorError};
use crate::launch::record::{CallFn, Recorded};
use crate::launch::rows::{self, RowWork};
use crate::launch::{self, Keeps, Prepared, ProgramKey, Work};
use crate::storage::Storage;
use crate::storage::deferred::Source;
use crate::tensor::Tensor;

/// A program that is ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) steps: Vec<Step>,
    places: Vec<Place>,
    /// The block of what lives between steps, for each device.
    pub(super) arenas: Vec<(Device, Arena)>,
    /// New memory of each run, that which is wanted outside first.
    new: Vec<New>,
    /// How much of it is wanted outside.
    wanted: usize,
    /// The slots of others' memory that it writes.
    pub(super) written: Vec<SlotId>,
    pub(super) nodes: usize,
    /// On how many devices it works.
    pub(super) devices: usize,
    /// Bytes that the operations would move one after another.
    pub(super) unfused: i64,
    pub(super) slots: usize,
    pub(super) kept: Vec<(&'static str, Option<Kept>)>,
}

/// A launch, or a call.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) work: StepWork,
    pub(super) outputs: Vec<View>,
    pub(super) inputs: Vec<View>,
    /// The stream, where it is not that of the call.
    stream: Option<Stream>,
    /// The operations that it does.
    pub(super) names: Vec<&'static str>,
    /// Bytes that they would move one after another.
    pub(super) unfused: i64,
    /// Its launches, once those were worked out; `None` where they are worked out each time.
    prepared: OnceLock<Option<Box<Prepared>>>,
}

impl Step {
    /// How many launches are kept ready.
    pub(super) fn launches(&self) -> usize {
        self.prepared.get().and_then(Option::as_ref).map_or(0, |prepared| prepared.len())
    }
}

pub(super) enum StepWork {
    Elements { key: ProgramKey, program: Arc<Program>, scalars: Vec<u64>, sizes: Vec<i64> },
    Rows { key: ProgramKey, reduction: Arc<Reduction>, scalars: Vec<u64>, dims: Vec<usize> },
    Call { run: Arc<CallFn> },
}

impl std::fmt::Debug for StepWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Elements { sizes, .. } => write!(f, "Elements({sizes:?})"),
            Self::Rows { dims, .. } => write!(f, "Rows({dims:?})"),
            Self::Call { .. } => write!(f, "Call"),
        }
    }
}

/// Where the memory of a slot is in a run.
#[derive(Clone, Debug)]
enum Place {
    Input(usize),
    Captured(Storage),
    /// New memory of each run, by its number.
    New(usize),
    /// A part of the block of a device.
    Arena {
        block: usize,
        offset: usize,
    },
    /// No step uses it.
    Nowhere,
}

/// Memory that each run asks for.
#[derive(Debug)]
struct New {
    bytes: usize,
    device: Device,
    /// Where it comes from, if not from where the call takes its memory.
    source: Option<Source>,
}

impl New {
    /// That of a slot of the trace's own, in a call on a stream.
    fn of(home: &Home, stream: &Stream) -> Option<Self> {
        let Home::Made { bytes, device, source } = home else { return None };
        // Memory of another stream is reused in the order of that one.
        let source = Some(source.clone()).filter(|own| own.stream != *stream || own.pool.is_some());
        Some(Self { bytes: *bytes, device: *device, source })
    }

    fn make(&self) -> Result<Storage> {
        let new = || Storage::new(self.bytes, self.device);
        self.source.as_ref().map_or_else(new, |source| source.memory(new))
    }
}

impl Plan {
    /// The plan of a graph. `stream` is the stream of the call.
    pub(super) fn new(graph: &Graph, fusion: &Fusion, stream: &Stream) -> Self {
        let mut steps = Vec::with_capacity(fusion.kernels.len());
        for kernel in &fusion.kernels {
            steps.extend(steps_of(graph, fusion, kernel, stream));
        }
        let Layout { places, new, arenas } = Layout::new(graph, &steps, stream);
        let wanted = graph.slots.iter().filter(|slot| slot.wanted.is_some()).count();
        let is_others = |slot: &SlotId| {
            let slot = &graph.slots[*slot];
            !matches!(slot.home, Home::Made { .. }) && !slot.writers.is_empty()
        };
        let written = (0..graph.slots.len()).filter(is_others).collect();
        let kept = graph.nodes.iter().zip(&fusion.kept).map(|(node, kept)| (node.name, *kept)).collect();
        let needed = graph.nodes.iter().zip(&fusion.kept).filter(|(_, kept)| **kept != Some(Kept::Dead));
        let unfused = needed.map(|(node, _)| moved(node)).sum();
        let (nodes, slots) = (graph.nodes.len(), graph.slots.len());
        let devices: HashSet<_> = graph.nodes.iter().map(|node| node.stream.device_index()).collect();
        let devices = devices.len();
        Self { steps, places, arenas, new, wanted, written, nodes, devices, unfused, slots, kept }
    }

    /// Why the plan cannot be a CUDA graph, where it cannot.
    pub(super) fn not_graphed(&self) -> Option<&'static str> {
        if !self.written.is_empty() {
            return Some("it writes to memory of others");
        }
        if self.steps.iter().any(|step| step.stream.is_some()) {
            return Some("it uses several streams");
        }
        let orders = |step: &Step| step.names == ["record_stream"] || step.outputs.len() + step.inputs.len() == 0;
        if self.steps.iter().any(orders) {
            return Some("it orders streams");
        }
        if self.new.iter().any(|new| new.source.is_some()) {
            return Some("it uses a memory pool");
        }
        let is_host = |place: &Place| matches!(place, Place::Captured(storage) if storage.present().is_none());
        if self.places.iter().any(is_host) {
            return Some("it uses memory of the host");
        }
        None
    }

    /// Runs the plan over the storages of the arguments. The answer is the memory of each wanted slot, in their order.
    pub(crate) fn run(&self, runtime: &Runtime, arguments: &[&Storage]) -> Result<Made> {
        let (mut blocks, mut made) = (Made::new(), Made::new());
        for (device, arena) in &self.arenas {
            blocks.push(Storage::new(arena.bytes, *device)?);
        }
        for new in &self.new {
            made.push(new.make()?);
        }
        let bound = Bound { plan: self, arguments, blocks: &blocks, made: &made };
        for &slot in &self.written {
            bound.place(slot).into_iter().for_each(|(storage, _)| storage.note_write());
        }
        for step in &self.steps {
            bound.step(runtime, step)?;
        }
        made.truncate(self.wanted);
        Ok(made)
    }
}

/// Memory that a run has made.
pub(crate) type Made = SmallVec<[Storage; 4]>;

/// A run of a plan.
struct Bound<'a> {
    plan: &'a Plan,
    arguments: &'a [&'a Storage],
    blocks: &'a [Storage],
    made: &'a [Storage],
}

impl Bound<'_> {
    /// The memory of a slot, and where in it the slot begins.
    fn place(&self, slot: SlotId) -> Option<(&Storage, usize)> {
        match &self.plan.places[slot] {
            Place::Input(at) => self.arguments.get(*at).map(|storage| (*storage, 0)),
            Place::Captured(storage) => Some((storage, 0)),
            Place::New(number) => self.made.get(*number).map(|storage| (storage, 0)),
            Place::Arena { block, offset } => self.blocks.get(*block).map(|storage| (storage, *offset)),
            Place::Nowhere => None,
        }
    }

    fn storage(&self, slot: SlotId) -> Result<(Storage, usize)> {
        let found = self.place(slot).ok_or(TensorError::Abandoned)?;
        Ok((found.0.clone(), found.1))
    }

    /// The memory of an operand of a step.
    fn buffer(&self, step: &Step, operand: usize) -> Option<&DeviceBuffer> {
        let view = step.outputs.get(operand).or_else(|| step.inputs.get(operand - step.outputs.len()))?;
        self.place(view.slot)?.0.present()
    }

    fn tensor(&self, view: &View) -> Result<Tensor> {
        let (storage, start) = self.storage(view.slot)?;
        let before = i64::try_from(start / view.dtype.itemsize()).unwrap_or(i64::MAX);
        Ok(View { offset: view.offset + before, ..view.clone() }.over(storage))
    }

    fn step(&self, runtime: &Runtime, step: &Step) -> Result<()> {
        let _guard = step.stream.as_ref().map(Stream::guard);
        if let Some(Some(prepared)) = step.prepared.get()
            && prepared.is_of(runtime)
            && prepared.run(runtime, |operand| self.buffer(step, operand))?
        {
            return Ok(());
        }
        let tensors = |views: &[View]| views.iter().map(|view| self.tensor(view)).collect::<Result<Vec<Tensor>>>();
        let (outputs, inputs) = (tensors(&step.outputs)?, tensors(&step.inputs)?);
        let (to, from): (Vec<&Tensor>, Vec<&Tensor>) = (outputs.iter().collect(), inputs.iter().collect());
        let keeps = if step.prepared.get().is_none() { Keeps::Launch } else { Keeps::Nothing };
        let prepared = match &step.work {
            StepWork::Elements { key, program, scalars, sizes } => {
                let program = Arc::clone(program);
                let work = Work { key: *key, program, outputs: &to, inputs: &from, scalars };
                launch::run_keeping(&work, sizes, keeps)?
            }
            StepWork::Rows { key, reduction, scalars, dims } => {
                let reduction = Arc::clone(reduction);
                let work = RowWork { key: *key, reduction, outputs: &to, inputs: &from, dims, scalars };
                rows::run_keeping(&work, keeps)?
            }
            StepWork::Call { run } => {
                run(&outputs, &inputs)?;
                None
            }
        };
        step.prepared.get_or_init(|| prepared);
        Ok(())
    }
}

/// The steps of a kernel: one, or one for each operation where they do not fit into one after all.
fn steps_of(graph: &Graph, fusion: &Fusion, kernel: &[NodeId], stream: &Stream) -> Vec<Step> {
    let is_single = |node: NodeId| {
        let links = fusion.links[node].iter().flatten();
        links.into_iter().all(|link| !fusion.is_inlined(link.maker))
    };
    if let &[node] = kernel
        && is_single(node)
    {
        return vec![alone(graph, node, stream)];
    }
    let lowered = Expression::new(graph, fusion, kernel)
        .and_then(|expression| Some((lower::lower(&expression)?, operations(graph, &expression, kernel))));
    match lowered {
        Some((lowered, names)) => vec![fused(lowered, names, own_stream(graph, kernel[0], stream))],
        None => unfused(graph, fusion, kernel).into_iter().map(|node| alone(graph, node, stream)).collect(),
    }
}

/// The nodes of a kernel and what is inlined in them, each once, in the order of the graph.
fn unfused(graph: &Graph, fusion: &Fusion, kernel: &[NodeId]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    let mut open = kernel.to_vec();
    while let Some(node) = open.pop() {
        if nodes.contains(&node) {
            continue;
        }
        nodes.push(node);
        let makers = graph.nodes[node].inputs.iter().filter_map(|input| graph.maker(input.slot));
        open.extend(makers.filter(|&maker| fusion.is_inlined(maker)));
    }
    nodes.sort_unstable();
    nodes
}

fn own_stream(graph: &Graph, node: NodeId, stream: &Stream) -> Option<Stream> {
    Some(graph.nodes[node].stream.clone()).filter(|own| own != stream)
}

/// Bytes that an operation reads and writes by itself.
fn moved(node: &Node) -> i64 {
    node.outputs.iter().chain(&node.inputs).map(View::bytes_in_memory).sum()
}

/// The operations of a kernel, and the bytes that they would move one after another.
fn operations(graph: &Graph, expression: &Expression<'_>, kernel: &[NodeId]) -> (Vec<&'static str>, i64) {
    let calls = expression.calls.iter().map(|call| call.node);
    let mut nodes: Vec<NodeId> = calls.chain(expression.reductions.iter().map(|reduced| reduced.node)).collect();
    nodes.extend(kernel);
    nodes.sort_unstable();
    nodes.dedup();
    let names = nodes.iter().map(|&node| graph.nodes[node].name).collect();
    (names, nodes.iter().map(|&node| moved(&graph.nodes[node])).sum())
}

/// An operation as it was written down.
fn alone(graph: &Graph, node: NodeId, stream: &Stream) -> Step {
    let own = &graph.nodes[node];
    let work = match own.work.clone() {
        Recorded::Elements { key, program, scalars, sizes } => {
            StepWork::Elements { key, program, scalars, sizes: sizes.to_vec() }
        }
        Recorded::Rows { key, reduction, scalars, dims } => StepWork::Rows { key, reduction, scalars, dims },
        Recorded::Call { run, .. } => StepWork::Call { run },
    };
    let (outputs, inputs) = (own.outputs.to_vec(), own.inputs.to_vec());
    Step {
        work,
        outputs,
        inputs,
        stream: own_stream(graph, node, stream),
        names: vec![own.name],
        unfused: moved(own),
        prepared: OnceLock::new(),
    }
}

fn fused(lowered: Lowered, (names, unfused): (Vec<&'static str>, i64), stream: Option<Stream>) -> Step {
    let Lowered { body, sizes, outputs, inputs } = lowered;
    let work = match body {
        Body::Elements { program } => {
            let (key, program) = keyed(&ELEMENTS, "compiled", program);
            StepWork::Elements { key, program, scalars: Vec::new(), sizes: sizes.to_vec() }
        }
        Body::Rows { reduction, dims } => {
            let (key, reduction) = keyed(&ROWS, "compiled_rows", reduction);
            StepWork::Rows { key, reduction, scalars: Vec::new(), dims }
        }
    };
    Step { work, outputs, inputs, stream, names, unfused, prepared: OnceLock::new() }
}

type Known<T> = OnceLock<Mutex<HashMap<Arc<T>, u64>>>;
static ELEMENTS: Known<Program> = OnceLock::new();
static ROWS: Known<Reduction> = OnceLock::new();

/// The key of a program: equal programs have one, and one copy.
fn keyed<T: Eq + std::hash::Hash>(known: &Known<T>, name: &'static str, program: Arc<T>) -> (ProgramKey, Arc<T>) {
    let mut known = known.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let next = known.len() as u64;
    let number = *known.entry(Arc::clone(&program)).or_insert(next);
    (ProgramKey::fused(name, number), program)
}

/// What a step does to a slot over time.
#[derive(Clone, Copy, Default)]
struct Life {
    /// The first and the last step that use it.
    steps: Option<(usize, usize)>,
    /// Whether one of them is on another stream than that of the call. Two streams share no block: only the order of one of
    /// them tells when memory is free again.
    is_shared: bool,
}

fn lives(graph: &Graph, steps: &[Step]) -> Vec<Life> {
    let mut lives = vec![Life::default(); graph.slots.len()];
    for (at, step) in steps.iter().enumerate() {
        for view in step.outputs.iter().chain(&step.inputs) {
            let life = &mut lives[view.slot];
            life.steps = Some((life.steps.map_or(at, |(first, _)| first), at));
            life.is_shared |= step.stream.is_some();
        }
    }
    lives
}

/// Where slots are, the new memory of each run, and the blocks of what lives between steps.
struct Layout {
    places: Vec<Place>,
    new: Vec<New>,
    arenas: Vec<(Device, Arena)>,
}

impl Layout {
    fn new(graph: &Graph, steps: &[Step], stream: &Stream) -> Self {
        let mut layout = Self { places: Vec::with_capacity(graph.slots.len()), new: Vec::new(), arenas: Vec::new() };
        // What is wanted comes first.
        let wanted = graph.slots.iter().filter(|slot| slot.wanted.is_some());
        layout.new.extend(wanted.filter_map(|slot| New::of(&slot.home, stream)));
        let mut next_wanted = 0..layout.new.len();
        let mut needs: Vec<(Device, Vec<(SlotId, Need)>)> = Vec::new();
        for (at, (slot, life)) in graph.slots.iter().zip(lives(graph, steps)).enumerate() {
            layout.places.push(match (&slot.home, life.steps) {
                (Home::Input(argument), _) => Place::Input(*argument),
                (Home::Captured(storage), _) => Place::Captured(storage.clone()),
                (Home::Made { .. }, _) if slot.wanted.is_some() => {
                    next_wanted.next().map_or(Place::Nowhere, Place::New)
                }
                (Home::Made { .. }, None) => Place::Nowhere,
                (Home::Made { source, .. }, Some(_)) if life.is_shared || source.pool.is_some() => {
                    layout.new.extend(New::of(&slot.home, stream));
                    Place::New(layout.new.len() - 1)
                }
                (Home::Made { bytes, device, .. }, Some((first, last))) => {
                    let need = Need { bytes: *bytes, first, last };
                    match needs.iter_mut().find(|(known, _)| known == device) {
                        Some((_, needs)) => needs.push((at, need)),
                        None => needs.push((*device, vec![(at, need)])),
                    }
                    Place::Nowhere
                }
            });
        }
        needs.into_iter().for_each(|(device, needs)| layout.add_arena(device, &needs));
        layout
    }

    fn add_arena(&mut self, device: Device, needs: &[(SlotId, Need)]) {
        let arena = Arena::new(&needs.iter().map(|(_, need)| *need).collect::<Vec<_>>());
        for ((slot, _), &offset) in needs.iter().zip(&arena.offsets) {
            self.places[*slot] = Place::Arena { block: self.arenas.len(), offset };
        }
        self.arenas.push((device, arena));
    }
}
