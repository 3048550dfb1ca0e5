//! Random well-typed programs: the PTX of each, run in the simulator under every schedule, gives what the evaluator on
//! the host gives, bit by bit. Functions that are only near the exact result are left out.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers are drawn, not measured")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a few types are treated on their own and the rest alike")]

mod support;

use kernel_ir::pointwise::{Access, Rows, Schedule};
use kernel_ir::{Binary, Compare, Graph, Math, Program, Type, Unary, Value};
use proptest::prelude::*;
use support::{Draw, Layout, check};

/// A step of building: which kind of node, and three numbers that choose its operation and operands.
type Step = (u8, u16, u16, u16);

/// A program that a list of steps stands for, with inputs and scalars of these types.
fn build(inputs: &[usize], scalars: &[usize], steps: &[Step]) -> Program {
    let mut graph = Graph::new();
    let mut values: Vec<Value> = inputs.iter().map(|&at| graph.input(Type::ALL[at])).collect();
    for &at in scalars {
        let scalar = graph.scalar(Type::ALL[at]);
        values.push(scalar);
    }
    for &step in steps {
        if let Some(value) = add_node(&mut graph, &values, step) {
            values.push(value);
        }
    }
    // The last nodes depend on most of the others.
    for &value in values.iter().rev().take(3) {
        graph.output(value);
    }
    graph.finish().expect("every node is well typed")
}

fn add_node(graph: &mut Graph, values: &[Value], (kind, a, b, c): Step) -> Option<Value> {
    let first = values[usize::from(a) % values.len()];
    let ty = graph.type_of(first);
    // A value of the same type as the first one.
    let same = |graph: &Graph, choice: u16| {
        let fitting: Vec<Value> = values.iter().copied().filter(|&value| graph.type_of(value) == ty).collect();
        fitting[usize::from(choice) % fitting.len()]
    };
    Some(match kind % 9 {
        0 => graph.unary(*pick(unary_of(ty), c)?, first),
        1 | 2 => {
            let second = same(graph, b);
            graph.binary(*pick(binary_of(ty), c)?, first, second)
        }
        3 => {
            let second = same(graph, b);
            let ops = [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];
            if matches!(ty, Type::F8E4M3 | Type::F8E5M2 | Type::F16 | Type::BF16) {
                return None;
            }
            graph.compare(*pick(&ops, c)?, first, second)
        }
        4 => {
            let conditions: Vec<Value> = values.iter().copied().filter(|&v| graph.type_of(v) == Type::Bool).collect();
            let second = same(graph, b);
            graph.select(*pick(&conditions, c)?, first, second)
        }
        5 => graph.convert(first, *pick(&Type::ALL, c)?),
        6 if ty.is_float() || ty.is_int() => {
            let (second, third) = (same(graph, b), same(graph, c));
            graph.fma(first, second, third)
        }
        7 => return same_bits(graph, first, c),
        8 if c % 4 == 0 => graph.index(),
        _ => {
            let second = same(graph, b);
            let function = match ty {
                Type::F32 | Type::F64 => Math::Fmod,
                Type::I32 | Type::I64 => *pick(&[Math::Gcd, Math::Powi], c)?,
                _ => return None,
            };
            graph.call(function, &[first, second])
        }
    })
}

/// The bits of a value as another type. PTX does not say which bits a NaN has, so it becomes zero before.
fn same_bits(graph: &mut Graph, value: Value, choice: u16) -> Option<Value> {
    let ty = graph.type_of(value);
    let value = match ty {
        Type::Bool | Type::F8E4M3 | Type::F8E5M2 | Type::F16 | Type::BF16 => return None,
        _ if ty.is_float() => {
            let (is_number, zero) = (graph.compare(Compare::Eq, value, value), graph.float(ty, 0.0));
            graph.select(is_number, value, zero)
        }
        _ => value,
    };
    let same_width = |to: &&Type| to.bytes() == ty.bytes() && **to != Type::Bool;
    let fitting: Vec<Type> = Type::ALL.iter().filter(same_width).copied().collect();
    Some(graph.bitcast(value, *pick(&fitting, choice)?))
}

fn unary_of(ty: Type) -> &'static [Unary] {
    match ty {
        Type::Bool => &[Unary::Not],
        Type::F8E4M3 | Type::F8E5M2 | Type::F16 | Type::BF16 => &[],
        Type::F32 | Type::F64 => {
            &[Unary::Neg, Unary::Abs, Unary::Sqrt, Unary::Floor, Unary::Ceil, Unary::Trunc, Unary::Round]
        }
        _ => &[Unary::Neg, Unary::Abs, Unary::Not],
    }
}

fn binary_of(ty: Type) -> &'static [Binary] {
    match ty {
        Type::Bool => &[Binary::And, Binary::Or, Binary::Xor],
        Type::F8E4M3 | Type::F8E5M2 | Type::F16 | Type::BF16 => &[],
        Type::F32 | Type::F64 => &[Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Min, Binary::Max],
        _ => &[
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Div,
            Binary::Rem,
            Binary::Min,
            Binary::Max,
            Binary::And,
            Binary::Or,
            Binary::Xor,
            Binary::Shl,
            Binary::Shr,
        ],
    }
}

fn pick<T>(from: &[T], choice: u16) -> Option<&T> {
    from.get(usize::from(choice).checked_rem(from.len())?)
}

/// Contiguous schedules of every vector width that fits, and strided ones.
fn schedules(program: &Program, seed: u64) -> Vec<(Schedule, Layout)> {
    let mut draw = Draw(seed);
    let target = [75, 80][draw.next() as usize % 2];
    let mut all = Vec::new();
    let widest = Schedule::contiguous(program);
    let Access::Contiguous { vector: widest_vector, .. } = widest.access else { return all };
    let mut vector = 1;
    while vector <= widest_vector {
        let access = Access::Contiguous { vector, unroll: 1 + (draw.next() % 3) as u8 };
        let schedule = Schedule { access, target, fused: draw.next().is_multiple_of(2) };
        // A whole block and a part of one.
        let count = schedule.elements_of_block() + draw.next() % schedule.elements_of_block();
        all.push((schedule, Layout::contiguous(program, count)));
        vector *= 2;
    }
    for wide in [false, true] {
        let layout = strided(program, &mut draw);
        let rank = layout.sizes.len() as u8;
        let fused = draw.next().is_multiple_of(2);
        all.push((Schedule { access: Access::Strided { rank, wide }, target, fused }, layout));
    }
    if !program.uses_index() {
        let (rows, layout) = rows(program, widest_vector, &mut draw);
        let fused = draw.next().is_multiple_of(2);
        all.push((Schedule { access: Access::Rows(rows), target, fused }, layout));
    }
    all
}

/// Rows that begin where vectors may, of which the last vector may be cut; inputs repeat elements along some dimensions.
fn rows(program: &Program, widest_vector: u8, draw: &mut Draw) -> (Rows, Layout) {
    let rank = 1 + draw.next() as usize % 3;
    let vector = widest_vector >> (draw.next() % u64::from(widest_vector.ilog2() + 1));
    let mut sizes: Vec<u64> = (0..rank).map(|_| 1 + draw.next() % 7).collect();
    sizes[0] = 1 + draw.next() % (9 * u64::from(vector));
    let (outputs, along) = (program.outputs().len(), draw.next() as usize % rank);
    let operands = outputs + program.inputs().len();
    let (mut repeated, mut kept) = (0, 0);
    let mut strides = Vec::new();
    for operand in 0..operands {
        let mut stride = sizes[0].next_multiple_of(u64::from(vector)) + u64::from(vector) * (draw.next() % 2);
        let mut of_operand = vec![1];
        for &size in &sizes[1..] {
            of_operand.push(stride);
            stride *= size;
        }
        for (dim, stride) in of_operand.iter_mut().enumerate() {
            if operand >= outputs && draw.next().is_multiple_of(3) {
                *stride = 0;
                repeated |= u32::from(dim == 0) << operand;
                kept |= u32::from(dim == along) << operand;
            }
        }
        strides.push(of_operand);
    }
    let (rank, along, unroll) = (rank as u8, along as u8, 1 + (draw.next() % 4) as u8);
    (Rows { rank, vector, unroll, along, repeated, kept }, Layout { sizes, strides })
}

/// Operands whose dimensions are in any order, with gaps; inputs repeat elements along some.
fn strided(program: &Program, draw: &mut Draw) -> Layout {
    let rank = 1 + draw.next() as usize % 4;
    let sizes: Vec<u64> = (0..rank).map(|_| 1 + draw.next() % 7).collect();
    let outputs = program.outputs().len();
    let operands = outputs + program.inputs().len();
    let strides = (0..operands)
        .map(|operand| {
            let mut order: Vec<usize> = (0..rank).collect();
            order.sort_by_cached_key(|_| draw.next());
            let mut strides = vec![0; rank];
            let mut stride = 1 + draw.next() % 2;
            for dim in order {
                strides[dim] = stride;
                stride *= sizes[dim];
                if operand >= outputs && draw.next().is_multiple_of(4) {
                    strides[dim] = 0;
                }
            }
            strides
        })
        .collect();
    Layout { sizes, strides }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_program_gives_the_same_on_the_simulator_as_on_the_host(
        inputs in prop::collection::vec(0..Type::ALL.len(), 1..4),
        scalars in prop::collection::vec(0..Type::ALL.len(), 0..3),
        steps in prop::collection::vec(any::<Step>(), 1..24),
        seed in any::<u64>(),
    ) {
        let program = build(&inputs, &scalars, &steps);
        for (schedule, layout) in schedules(&program, seed) {
            check(&program, schedule, &layout, seed);
        }
    }
}

/// Every conversion, each of which has its own rule for what does not fit.
#[test]
fn every_conversion_gives_the_same() {
    for from in Type::ALL {
        let mut graph = Graph::new();
        let value = graph.input(from);
        for to in Type::ALL {
            let converted = graph.convert(value, to);
            graph.output(converted);
        }
        let program = graph.finish().expect("every conversion exists");
        let schedule = Schedule::unaligned();
        check(&program, schedule, &Layout::contiguous(&program, 1000), from as u64);
    }
}

/// A thread holds a vector of each operand, so vectors are as wide as registers allow; a program that was not fused has
/// few operands and wide vectors.
#[test]
fn fused_programs_of_many_operands_have_narrow_vectors() {
    for (operands, ty, wanted) in [
        (8, Type::F32, 4),
        (31, Type::F32, 4),
        (32, Type::F32, 2),
        (70, Type::F32, 1),
        (15, Type::F16, 8),
        (40, Type::F16, 4),
    ] {
        let mut graph = Graph::new();
        let inputs: Vec<Value> = (0..operands).map(|_| graph.input(ty)).collect();
        let mut sum = inputs[0];
        for &input in inputs.iter().cycle().skip(1).take(operands.max(20)) {
            sum = graph.binary(Binary::Add, sum, input);
        }
        graph.output(sum);
        let program = graph.finish().expect("sums are well typed");
        let schedule = Schedule::contiguous(&program).for_fused(&program);
        assert_eq!(schedule.access, Access::Contiguous { vector: wanted, unroll: 1 }, "{operands} of {ty:?}");
    }
}
