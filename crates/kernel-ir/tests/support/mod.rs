//! Programs in the simulator of PTX: operands laid out in memory, the kernel run, and its outputs compared with what
//! [`kernel_ir::eval`] gives for the same elements.

use kernel_ir::eval::{self, Row};
use kernel_ir::pointwise::{self, Schedule, THREADS};
use kernel_ir::{Program, Type};
use ptx_sim::{FlatMemory, Launch, Limits, Module, run};

/// Where memory begins.
const BASE: u64 = 1 << 32;

/// What bytes are that no kernel writes.
const UNTOUCHED: u8 = 0xa5;

/// How operands lie in memory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Sizes, fastest first.
    pub(crate) sizes: Vec<u64>,
    /// For each operand (outputs first) the strides in elements.
    pub(crate) strides: Vec<Vec<u64>>,
}

impl Layout {
    /// All operands one element after another.
    pub(crate) fn contiguous(program: &Program, count: u64) -> Self {
        let operands = program.inputs().len() + program.outputs().len();
        Self { sizes: vec![count], strides: vec![vec![1]; operands] }
    }

    fn count(&self) -> u64 {
        self.sizes.iter().product()
    }

    /// The place of an element of an operand, in elements.
    fn place(&self, operand: usize, element: u64) -> u64 {
        let (mut rest, mut place) = (element, 0);
        for (size, stride) in self.sizes.iter().zip(&self.strides[operand]) {
            place += rest % size * stride;
            rest /= size;
        }
        place
    }

    fn extent(&self, operand: usize) -> u64 {
        (0..self.count()).map(|element| self.place(operand, element) + 1).max().unwrap_or(0)
    }
}

/// Runs the program under the schedule and on the host, on inputs whose bits are drawn from a seed, and panics where an
/// output differs or other memory was written.
pub(crate) fn check(program: &Program, schedule: Schedule, layout: &Layout, seed: u64) {
    let types: Vec<Type> = program.output_types().chain(program.inputs().iter().copied()).collect();
    let outputs = program.outputs().len();
    let mut draw = Draw(seed);
    let mut bytes: Vec<u8> = Vec::new();
    let mut starts = Vec::new();
    for (operand, &ty) in types.iter().enumerate() {
        starts.push(bytes.len());
        let extent = layout.extent(operand);
        for _ in 0..extent {
            let element = if operand < outputs { u64::from_le_bytes([UNTOUCHED; 8]) } else { draw.element(ty) };
            bytes.extend(&element.to_le_bytes()[..ty.bytes()]);
        }
        // A gap after each operand, up to where vectors may begin.
        bytes.resize(bytes.len().next_multiple_of(16) + 16, UNTOUCHED);
    }
    let scalars: Vec<u64> = program.scalars().iter().map(|&ty| draw.element(ty)).collect();
    let expected = on_host(program, layout, &bytes, &starts, &scalars);
    let found = on_simulator(program, schedule, layout, bytes.clone(), &starts, &scalars);
    let mut wanted = bytes;
    for (at, row) in expected.iter().enumerate() {
        for element in 0..layout.count() {
            let place = starts[at] + usize::try_from(layout.place(at, element)).expect("it fits") * types[at].bytes();
            let index = usize::try_from(element).expect("it fits");
            let width = types[at].bytes();
            let (ours, theirs) = (&row.bits(types[at], index).to_le_bytes()[..width], &found[place..place + width]);
            let both_nan = is_nan(types[at], ours) && is_nan(types[at], theirs);
            assert!(ours == theirs || both_nan, "output {at}, element {element}: {ours:x?} on the host, {theirs:x?}");
            wanted[place..place + width].copy_from_slice(theirs);
        }
    }
    assert!(wanted == found, "memory beside the outputs was written");
}

fn on_host(program: &Program, layout: &Layout, bytes: &[u8], starts: &[usize], scalars: &[u64]) -> Vec<Row> {
    let outputs = program.outputs().len();
    let count = usize::try_from(layout.count()).expect("it fits");
    let inputs: Vec<Row> = program
        .inputs()
        .iter()
        .enumerate()
        .map(|(at, &ty)| {
            let operand = outputs + at;
            let place = |element| {
                starts[operand] + usize::try_from(layout.place(operand, element)).expect("it fits") * ty.bytes()
            };
            Row::gather(ty, (0..layout.count()).map(|element| &bytes[place(element)..place(element) + ty.bytes()]))
        })
        .collect();
    eval::run(program, &inputs, scalars, 0, count)
}

fn on_simulator(
    program: &Program,
    schedule: Schedule,
    layout: &Layout,
    mut bytes: Vec<u8>,
    starts: &[usize],
    scalars: &[u64],
) -> Vec<u8> {
    let kernel = pointwise::write(program, &schedule, "k").expect("the schedule fits");
    // The driver's assembler refuses an empty statement; a vector's brace ends no scope.
    assert!(!kernel.text.lines().any(|line| matches!(line.trim(), ";" | "};" | "{;")), "{}", kernel.text);
    let limits = Limits { version: 78, target: 90 };
    let module = Module::read(&kernel.text, limits).unwrap_or_else(|refusal| panic!("{refusal}\n{}", kernel.text));
    let entry = module.entry("k").expect("there is a kernel");
    let refusals: Vec<String> = entry.refusals().into_iter().map(ToString::to_string).collect();
    assert!(refusals.is_empty(), "{refusals:#?}\n{}", kernel.text);
    let index = entry.index();
    let loaded = ptx_sim::Program::new(module);
    let variables = BASE + bytes.len() as u64;
    let of_operands = bytes.len();
    bytes.extend(loaded.module().image(variables));
    let types: Vec<Type> = program.output_types().chain(program.inputs().iter().copied()).collect();
    let strides: Vec<Vec<i64>> = layout
        .strides
        .iter()
        .zip(&types)
        .map(|(strides, ty)| {
            strides.iter().map(|&stride| i64::try_from(stride).expect("it fits") * ty.bytes() as i64).collect()
        })
        .collect();
    let strides: Vec<&[i64]> = strides.iter().map(Vec::as_slice).collect();
    let meta = kernel.meta.write(layout.count(), scalars, &layout.sizes, &strides);
    assert_eq!(meta.len(), kernel.meta.bytes());
    let mut parameters: Vec<u8> = starts.iter().flat_map(|&start| (BASE + start as u64).to_le_bytes()).collect();
    parameters.extend(meta);
    let blocks = u32::try_from(schedule.blocks(layout.count(), &layout.sizes)).expect("it fits");
    let mut memory = FlatMemory::new(BASE, &mut bytes);
    let launch = Launch {
        variables,
        warp_steps: 1 << 24,
        ..Launch::new(&loaded, index, [blocks, 1, 1], [THREADS, 1, 1], &parameters)
    };
    let (_, ended) = run(launch, &mut memory);
    assert!(ended.is_ok(), "{:?}\n{}", ended.err().map(|failure| failure.fault), kernel.text);
    bytes.truncate(of_operands);
    bytes
}

fn is_nan(ty: Type, bytes: &[u8]) -> bool {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(all);
    let largest = match ty {
        Type::F8E4M3 => 0x7e,
        Type::F8E5M2 => 0x7c,
        Type::F16 => 0x7c00,
        Type::BF16 => 0x7f80,
        Type::F32 => 0x7f80_0000,
        Type::F64 => 0x7ff0_0000_0000_0000,
        _ => return false,
    };
    bits & (u64::MAX >> (65 - ty.bits())) > largest
}

/// Numbers drawn from a seed (SplitMix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The bits of an element: any bits, a small number, or one at the edge of the type.
    pub(crate) fn element(&mut self, ty: Type) -> u64 {
        let (kind, bits) = (self.next() % 4, self.next());
        let small = i64::try_from(bits % 17).expect("it fits") - 8;
        let edges = [0_i64, -1, 1, i64::MIN, i64::MAX, 31, 32, 64];
        let element = match (kind, ty) {
            (_, Type::Bool) => bits & 1,
            (0, _) => bits,
            (1, Type::F32) => u64::from((small as f32 / 4.0).to_bits()),
            (1, Type::F64) => (small as f64 / 4.0).to_bits(),
            (2, Type::F32) => {
                u64::from([0.0, -0.0, f32::INFINITY, f32::NAN, 2.5e9, -3e-39, 1e20][bits as usize % 7].to_bits())
            }
            (2, Type::F64) => [0.0, -0.0, f64::INFINITY, f64::NAN, 2.5e9, -3e-310, 1e20][bits as usize % 7].to_bits(),
            (2, _) => edges[bits as usize % 8].cast_unsigned() >> if bits & 64 == 0 { 0 } else { 64 - ty.bits() },
            (1, _) => small.cast_unsigned(),
            _ => bits >> (bits % 60),
        };
        element & (u64::MAX >> (64 - ty.bits()))
    }
}
