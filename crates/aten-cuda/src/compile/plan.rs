//! A graph that is ready to run: kernels with their operands.
//!
//! **Invariants:** a plan holds no memory but what the traced function had kept. It runs its steps in their order, each on
//! the stream that it was traced on, where steps of the stream of the call follow the call.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use c10_core::{DeviceBuffer, Runtime, Stream};
use kernel_ir::Program;
use kernel_ir::reduce::Reduction;
use smallvec::SmallVec;

use super::copies::{self, CopyReport};
use super::epilogue::{self, EpilogueReport};
use super::expression::Expression;
use super::fuse::{Fusion, Kept};
use super::graph::{Graph, Home, NodeId, SlotId, View};
use super::layout::{Layout, Made, Place, Uses};
use super::lower::{self, Body, Lowered};
use super::repeats;
use crate::base::error::{Result, TensorError};
use crate::launch::record::{Beyond, CallFn, Recorded};
use crate::launch::rows::{self, RowWork};
use crate::launch::{self, Keeps, Numbered, Prepared, ProgramKey, Work};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// A program that is ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) layout: Layout,
    /// The slots of others' memory that it writes.
    pub(super) written: Vec<SlotId>,
    pub(super) nodes: usize,
    /// On how many devices it works.
    pub(super) devices: usize,
    /// Bytes that the operations would move one after another.
    pub(super) unfused: i64,
    pub(super) slots: usize,
    pub(super) kept: Vec<(&'static str, Option<Kept>)>,
    pub(super) copies: Vec<CopyReport>,
    pub(super) epilogues: Vec<EpilogueReport>,
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
    /// The slots that it uses, and whether it does so on another stream than that of the call.
    fn uses(&self) -> Uses<'_> {
        Uses { views: [&self.outputs, &self.inputs], is_elsewhere: self.stream.is_some() }
    }

    /// How many launches are kept ready.
    pub(super) fn launches(&self) -> usize {
        self.prepared.get().and_then(Option::as_ref).map_or(0, |prepared| prepared.len())
    }
}

pub(super) enum StepWork {
    Elements {
        key: ProgramKey,
        program: Arc<Program>,
        scalars: Vec<u64>,
        sizes: Vec<i64>,
    },
    /// Several programs, each over so many elements that lie one after another.
    Parts {
        key: ProgramKey,
        programs: Arc<Vec<Arc<Program>>>,
        counts: Vec<u64>,
    },
    Rows {
        key: ProgramKey,
        reduction: Arc<Reduction>,
        scalars: Vec<u64>,
        dims: Vec<usize>,
    },
    Call {
        run: Arc<CallFn>,
        beyond: Beyond,
    },
}

impl std::fmt::Debug for StepWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Elements { sizes, .. } => write!(f, "Elements({sizes:?})"),
            Self::Parts { counts, .. } => write!(f, "Parts({counts:?})"),
            Self::Rows { dims, .. } => write!(f, "Rows({dims:?})"),
            Self::Call { .. } => write!(f, "Call"),
        }
    }
}

impl Plan {
    /// The plan of a graph. `stream` is the stream of the call; what goes from one operation to the next within a kernel
    /// may be rounded less often where the plan keeps it wide.
    pub(super) fn of(mut graph: Graph, keeps_wide: bool, stream: &Stream) -> Self {
        repeats::leave_out(&mut graph);
        let copies = copies::leave_out(&mut graph, keeps_wide);
        let epilogues = epilogue::take_along(&mut graph, keeps_wide);
        let made = Self::new(&graph, &Fusion::new(&graph, keeps_wide), stream);
        Self { copies, epilogues, ..made }
    }

    fn new(graph: &Graph, fusion: &Fusion, stream: &Stream) -> Self {
        let mut steps = Vec::with_capacity(fusion.kernels.len());
        for kernel in &fusion.kernels {
            steps.extend(steps_of(graph, fusion, kernel, stream));
        }
        let uses: Vec<Uses<'_>> = steps.iter().map(Step::uses).collect();
        let layout = Layout::new(graph, &uses, stream);
        let is_others = |slot: &SlotId| {
            let slot = &graph.slots[*slot];
            !matches!(slot.home, Home::Made { .. }) && !slot.writers.is_empty()
        };
        let written = (0..graph.slots.len()).filter(is_others).collect();
        let kept = graph.nodes.iter().zip(&fusion.kept).map(|(node, kept)| (node.name, *kept)).collect();
        let needed = graph.nodes.iter().zip(&fusion.kept).filter(|(_, kept)| **kept != Some(Kept::Dead));
        let unfused = needed.map(|(node, _)| node.moved()).sum();
        let nodes = graph.nodes.iter().map(|node| node.names().len()).sum();
        let (slots, copies, epilogues) = (graph.slots.len(), Vec::new(), Vec::new());
        let devices: HashSet<_> = graph.nodes.iter().map(|node| node.stream.device_index()).collect();
        let devices = devices.len();
        Self { steps, layout, written, nodes, devices, unfused, slots, kept, copies, epilogues }
    }

    /// Why the plan cannot be a CUDA graph, where it cannot.
    pub(super) fn not_graphed(&self) -> Option<&'static str> {
        if self.steps.iter().any(|step| step.stream.is_some()) {
            return Some("it uses several streams");
        }
        if self.steps.iter().any(|step| matches!(step.work, StepWork::Call { beyond: Beyond::Streams, .. })) {
            return Some("it orders streams");
        }
        if self.layout.has_sources() {
            return Some("it uses a memory pool");
        }
        let is_host = |place: &Place| matches!(place, Place::Captured(storage) if storage.present().is_none());
        if self.layout.places.iter().any(is_host) {
            return Some("it uses memory of the host");
        }
        None
    }

    /// Runs the plan; `argument` gives the memory of each argument. The answer is that of each wanted slot, in their order.
    pub(super) fn run<'a>(&self, runtime: &Runtime, argument: impl Fn(usize) -> Option<&'a Storage>) -> Result<Made> {
        let argument = &argument;
        let mut blocks: SmallVec<[Storage; 2]> = SmallVec::new();
        for (device, arena) in &self.layout.arenas {
            blocks.push(Storage::new(arena.bytes, *device)?);
        }
        let mut made = self.layout.begin()?;
        let bound = Bound { plan: self, argument, blocks: &blocks, made: &made };
        for &slot in &self.written {
            bound.place(slot).into_iter().for_each(|(storage, _)| storage.note_write());
        }
        if self.layout.is_there_throughout() {
            self.steps.iter().try_for_each(|step| bound.step(runtime, step))?;
        } else {
            for (at, step) in self.steps.iter().enumerate() {
                self.layout.before(at, &mut made)?;
                Bound { plan: self, argument, blocks: &blocks, made: &made }.step(runtime, step)?;
                self.layout.after(at, &mut made);
            }
        }
        made.truncate(self.layout.wanted);
        Ok(made)
    }
}

/// A run of a plan.
struct Bound<'a, 'b> {
    plan: &'a Plan,
    argument: &'a dyn Fn(usize) -> Option<&'b Storage>,
    blocks: &'a [Storage],
    made: &'a [Option<Storage>],
}

impl Bound<'_, '_> {
    /// The memory of a slot, and where in it the slot begins.
    fn place(&self, slot: SlotId) -> Option<(&Storage, usize)> {
        match &self.plan.layout.places[slot] {
            Place::Input(at) => (self.argument)(*at).map(|storage| (storage, 0)),
            Place::Captured(storage) => Some((storage, 0)),
            Place::New { number, offset } => Some((self.made.get(*number)?.as_ref()?, *offset)),
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
        View { offset: view.offset.saturating_add(before), ..view.clone() }.over(storage)
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
            StepWork::Parts { key, programs, counts } => {
                launch::run_programs((*key, programs), (&to, &from), counts, keeps)?
            }
            StepWork::Rows { key, reduction, scalars, dims } => {
                let reduction = Arc::clone(reduction);
                let work = RowWork { key: *key, reduction, outputs: &to, inputs: &from, dims, scalars };
                rows::run_keeping(&work, keeps)?
            }
            StepWork::Call { run, .. } => {
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
    if kernel.iter().any(|&node| graph.nodes[node].domain() != graph.nodes[kernel[0]].domain()) {
        return beside(graph, fusion, kernel, stream);
    }
    let lowered = Expression::new(graph, fusion, kernel)
        .and_then(|expression| Some((lower::lower(&expression)?, operations(graph, &expression, kernel))));
    match lowered {
        Some((lowered, names)) => vec![fused(lowered, names, own_stream(graph, kernel[0], stream))],
        None => unfused(graph, fusion, kernel).into_iter().map(|node| alone(graph, node, stream)).collect(),
    }
}

/// The step of nodes over different elements that stand in a kernel beside each other; steps of their own where they do not
/// fit into one after all.
fn beside(graph: &Graph, fusion: &Fusion, kernel: &[NodeId], stream: &Stream) -> Vec<Step> {
    let mut domains: Vec<Vec<NodeId>> = Vec::new();
    for &node in kernel {
        let is_its = |nodes: &&mut Vec<NodeId>| graph.nodes[nodes[0]].domain() == graph.nodes[node].domain();
        match domains.iter_mut().find(is_its) {
            Some(nodes) => nodes.push(node),
            None => domains.push(vec![node]),
        }
    }
    let lowered = |nodes: &Vec<NodeId>| {
        let expression = Expression::new(graph, fusion, nodes)?;
        Some((lower::lower(&expression)?, operations(graph, &expression, nodes)))
    };
    let (mut programs, mut counts, mut names, mut unfused) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
    for part in domains.iter().map(lowered) {
        let Some((Lowered { body: Body::Elements { program }, sizes, outputs: to, inputs: from }, own)) = part else {
            return domains.iter().flat_map(|nodes| steps_of(graph, fusion, nodes, stream)).collect();
        };
        programs.push(keyed(&ELEMENTS, "compiled", program).1);
        counts.push(sizes.iter().product::<i64>().unsigned_abs());
        names.extend(own.0);
        unfused += own.1;
        outputs.extend(to);
        inputs.extend(from);
    }
    let (key, programs) = keyed(&PARTS, "compiled_parts", Arc::new(programs));
    let (work, stream) = (StepWork::Parts { key, programs, counts }, own_stream(graph, kernel[0], stream));
    vec![Step { work, outputs, inputs, stream, names, unfused, prepared: OnceLock::new() }]
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

/// The operations of a kernel, and the bytes that they would move one after another.
fn operations(graph: &Graph, expression: &Expression<'_>, kernel: &[NodeId]) -> (Vec<&'static str>, i64) {
    let calls = expression.calls.iter().map(|call| call.node);
    let mut nodes: Vec<NodeId> = calls.chain(expression.reductions.iter().map(|reduced| reduced.node)).collect();
    nodes.extend(kernel);
    nodes.sort_unstable();
    nodes.dedup();
    let names = nodes.iter().map(|&node| graph.nodes[node].name).collect();
    (names, nodes.iter().map(|&node| graph.nodes[node].moved()).sum())
}

/// An operation as it was written down.
fn alone(graph: &Graph, node: NodeId, stream: &Stream) -> Step {
    let own = &graph.nodes[node];
    let work = match own.work.clone() {
        // Its call finds the kernel that turns tiles around.
        Recorded::Elements { .. } if copies::turns_around(own) => {
            StepWork::Call { run: Arc::new(copied), beyond: Beyond::Nothing }
        }
        Recorded::Elements { key, program, scalars, sizes } => {
            StepWork::Elements { key, program, scalars, sizes: sizes.to_vec() }
        }
        Recorded::Rows { key, reduction, scalars, dims } => StepWork::Rows { key, reduction, scalars, dims },
        Recorded::Call { run, beyond, .. } => StepWork::Call { run, beyond },
    };
    let (outputs, inputs) = (own.outputs.to_vec(), own.inputs.to_vec());
    Step {
        work,
        outputs,
        inputs,
        stream: own_stream(graph, node, stream),
        names: own.names(),
        unfused: own.moved(),
        prepared: OnceLock::new(),
    }
}

/// A copy by the operation.
fn copied(outputs: &[Tensor], inputs: &[Tensor]) -> Result<()> {
    outputs.iter().zip(inputs).try_for_each(|(to, from)| to.copy_(from).map(drop))
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

type Known<T> = OnceLock<Numbered<T>>;
static ELEMENTS: Known<Program> = OnceLock::new();
static PARTS: Known<Vec<Arc<Program>>> = OnceLock::new();
static ROWS: Known<Reduction> = OnceLock::new();

/// The key of a program: equal programs have one, and one copy.
fn keyed<T: Eq + std::hash::Hash>(known: &Known<T>, name: &'static str, program: Arc<T>) -> (ProgramKey, Arc<T>) {
    let (number, program) = known.get_or_init(Numbered::default).number(program);
    (ProgramKey::fused(name, number), program)
}
