//! Reductions: what is refused, what is computed on the host, and what the kernels' texts have.

use kernel_ir::eval::Row;
use kernel_ir::reduce::{self, Last, Order, Pass, Place, Reduction, Schedule};
use kernel_ir::{Binary, Graph, GraphError, Math, Program, Type, Value};

fn program(inputs: &[Type], build: impl FnOnce(&mut Graph, &[Value]) -> Vec<Value>) -> Program {
    let mut graph = Graph::new();
    let values: Vec<_> = inputs.iter().map(|&ty| graph.input(ty)).collect();
    for value in build(&mut graph, &values) {
        graph.output(value);
    }
    graph.finish().expect("the program is well typed")
}

fn add(ty: Type) -> Program {
    program(&[ty, ty], |graph, values| vec![graph.binary(Binary::Add, values[0], values[1])])
}

fn sum(ty: Type) -> Pass {
    let finish = program(&[ty], |_, values| values.to_vec());
    Pass { identity: vec![(ty, 0)], accumulate: add(ty), combine: add(ty), finish }
}

fn sums(last: Last) -> Reduction {
    Reduction::new(vec![Type::F32], Vec::new(), vec![sum(Type::F32)], last).expect("the programs fit")
}

fn schedule(order: Order, lanes: u16, vector: u8) -> Schedule {
    let (threads, unroll, resident, kept, reduced) = (256, 2, 0, 1, 1);
    Schedule {
        order,
        threads,
        lanes,
        vector,
        unroll,
        resident,
        kept,
        reduced,
        wide: false,
        repeated: 0,
        target: 75,
        fused: false,
        folded: 0,
    }
}

/// Runs on rows of `f32`.
fn run(reduction: &Reduction, rows: &[Vec<f32>]) -> Vec<(Place, f32)> {
    let load = |_: usize, places: &[Place]| Row::F32(places.iter().map(|&(row, at)| rows[row][at]).collect());
    let mut stored = Vec::new();
    let extent = rows.first().map_or(0, Vec::len);
    let mut store = |_: usize, places: &[Place], row: &Row| {
        let Row::F32(values) = row else { panic!("the outputs are f32") };
        stored.extend(places.iter().copied().zip(values.iter().copied()));
    };
    reduce::run(reduction, &[], (rows.len(), extent), &load, &mut store);
    stored
}

#[test]
fn programs_that_do_not_fit_together_are_refused() {
    let wrong = Pass { combine: add(Type::F64), ..sum(Type::F32) };
    assert_eq!(Reduction::new(vec![Type::F32], Vec::new(), vec![wrong], Last::Row), Err(GraphError::Reduction));
    // An accumulator has 32 bits at least.
    let narrow = Pass {
        identity: vec![(Type::Bool, 0)],
        accumulate: program(&[Type::Bool; 2], |graph, values| vec![graph.binary(Binary::Or, values[0], values[1])]),
        combine: program(&[Type::Bool; 2], |graph, values| vec![graph.binary(Binary::Or, values[0], values[1])]),
        finish: program(&[Type::Bool], |_, values| values.to_vec()),
    };
    assert_eq!(Reduction::new(vec![Type::Bool], Vec::new(), vec![narrow], Last::Row), Err(GraphError::Reduction));
    let none = Reduction::new(vec![Type::F32], Vec::new(), Vec::new(), Last::Row);
    assert_eq!(none, Err(GraphError::Reduction));
    let two = vec![sum(Type::F32), sum(Type::F32)];
    assert_eq!(Reduction::new(vec![Type::F32], Vec::new(), two, Last::Running), Err(GraphError::Reduction));
}

#[test]
fn schedules_that_do_not_fit_are_refused() {
    let row = sums(Last::Row);
    let good = schedule(Order::Inner, 32, 4);
    assert!(reduce::write(&row, &good, "sum").is_ok());
    for wrong in [
        Schedule { lanes: 3, ..good },
        Schedule { lanes: 512, ..good },
        Schedule { vector: 8, ..good },
        Schedule { threads: 100, ..good },
        Schedule { kept: 0, ..good },
    ] {
        assert!(matches!(reduce::write(&row, &wrong, "sum"), Err(GraphError::Schedule { .. })), "{wrong:?}");
    }
    let running = schedule(Order::Outer, 8, 1);
    assert!(matches!(reduce::write(&sums(Last::Running), &running, "cumsum"), Err(GraphError::Schedule { .. })));
    assert!(reduce::write(&sums(Last::Running), &good, "cumsum").is_ok());
    assert!(matches!(sums(Last::Running).partial(), Err(GraphError::Schedule { .. })));
}

#[test]
fn texts_have_what_the_schedule_says() {
    let row = sums(Last::Row);
    let text = |schedule: &Schedule| reduce::write(&row, schedule, "sum").expect("the schedule fits").0;
    let warp = text(&schedule(Order::Inner, 32, 4));
    assert!(warp.contains("ld.global.v4.f32") && warp.contains("shfl.sync.down.b32") && !warp.contains("bar.sync"));
    let block = text(&schedule(Order::Inner, 256, 4));
    assert!(block.contains(".shared .align 8 .b8 shared[64]") && block.contains("bar.sync 0"));
    let outer = text(&schedule(Order::Outer, 8, 4));
    assert!(!outer.contains("shfl") && outer.contains("bar.sync 0"));
    assert_eq!(warp, text(&schedule(Order::Inner, 32, 4)), "the same schedule gives the same text");
    assert!(!warp.contains("red.") && !block.contains("atom."), "no atomic operation");
}

/// Each element's share in the sum of exponentials of its row.
fn shares() -> Reduction {
    let accumulate = program(&[Type::F32; 2], |graph, values| {
        let power = graph.call(Math::Exp, &[values[1]]);
        vec![graph.binary(Binary::Add, values[0], power)]
    });
    let share = program(&[Type::F32; 2], |graph, values| {
        let power = graph.call(Math::Exp, &[values[0]]);
        vec![graph.binary(Binary::Div, power, values[1])]
    });
    let pass = Pass { accumulate, ..sum(Type::F32) };
    Reduction::new(vec![Type::F32], Vec::new(), vec![pass], Last::Each(share)).expect("the programs fit")
}

#[test]
fn rows_that_fill_their_lanes_are_written_out() {
    let shares = shares();
    let given = Schedule { resident: 2, ..schedule(Order::Inner, 256, 4) };
    let text = |schedule: &Schedule| reduce::write(&shares, schedule, "shares").expect("the schedule fits").0;
    let (whole, other) = (given.for_fused(&shares, 2048), given.for_fused(&shares, 2044));
    assert_eq!((whole.folded, whole.block(), whole.rows_of_block()), (2, 128, 1));
    assert_eq!((other.folded, other.block(), other.fused), (0, 256, true), "some lanes have fewer elements");
    let (whole_text, other_text) = (text(&whole), text(&other));
    assert!(whole_text.contains(".maxntid 128, 1, 1") && !whole_text.contains("nounroll"));
    assert!(other_text.contains(".maxntid 256, 1, 1") && other_text.contains("nounroll"));
    // An exponential for each of the sixteen elements of a thread: the second program finds that of the first.
    assert_eq!(whole_text.matches("ex2.approx").count(), 16);
    // What a thread has for two lanes is combined before threads are: one step fewer among these, and eight warps.
    assert_eq!((whole_text.matches("shfl.sync").count(), other_text.matches("shfl.sync").count()), (4, 5));
    assert_eq!((whole_text.matches("ld.shared.f32").count(), whole_text.matches("bar.sync").count()), (8, 1));
    // Twice as long a row is too much for a thread, and one as long as the other limit allows is gone through in loops.
    let long = Schedule { resident: 8, ..given }.for_fused(&shares, 8192);
    assert_eq!((long.folded, long.block()), (1, 256));
    assert_eq!(Schedule { resident: 16, ..given }.for_fused(&shares, 16384).folded, 0);
    // Rows that would share a block have one each, by as many lanes as before.
    let beside = Schedule { lanes: 128, resident: 8, ..given }.for_fused(&shares, 4096);
    assert_eq!((beside.folded, beside.lanes, beside.block(), beside.rows_of_block()), (1, 128, 128, 1));
    let looped = Schedule { lanes: 128, resident: 8, ..given }.for_fused(&shares, 4092);
    assert_eq!((looped.folded, looped.block(), looped.rows_of_block()), (0, 256, 2));
    for wrong in [
        Schedule { folded: 4, ..whole },
        Schedule { fused: false, ..whole },
        Schedule { lanes: 128, ..whole },
        Schedule { order: Order::Outer, ..whole },
        Schedule { vector: 1, ..whole },
        Schedule { resident: 0, ..whole },
    ] {
        let refused = reduce::write(&shares, &wrong, "shares");
        assert!(matches!(refused, Err(GraphError::Schedule { .. })), "{wrong:?}");
    }
}

#[test]
fn rows_are_reduced_on_the_host() {
    for count in [0_u16, 1, 3, 32, 33, 511, 512, 513, 2000] {
        let row = |row: u16| (0..count).map(|at| f32::from(row * 7 + at % 5)).collect();
        let rows: Vec<Vec<f32>> = (0..3_u16).map(row).collect();
        let wanted: Vec<f32> = rows.iter().map(|row| row.iter().fold(0.0, |sum, value| sum + value)).collect();
        let found: Vec<f32> = run(&sums(Last::Row), &rows).into_iter().map(|(_, sum)| sum).collect();
        assert_eq!(found, wanted, "{count}");
    }
}

#[test]
fn scans_and_row_operations_give_an_element_for_each() {
    let rows = vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]];
    let mut scanned = run(&sums(Last::Running), &rows);
    scanned.sort_by_key(|&(place, _)| place);
    let values: Vec<f32> = scanned.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    let share = program(&[Type::F32; 2], |graph, values| vec![graph.binary(Binary::Div, values[0], values[1])]);
    let long = vec![vec![2.0; 100]];
    assert!(run(&sums(Last::Each(share)), &long).iter().all(|&(_, value)| (value - 0.01).abs() < 1e-9));
}

#[test]
fn what_a_reduction_reads_is_known() {
    let row = sums(Last::Row);
    assert!(row.is_accumulated(0) && !row.is_indexed() && row.splits());
    let scale = program(&[Type::F32; 3], |graph, values| {
        let product = graph.binary(Binary::Mul, values[0], values[1]);
        vec![graph.binary(Binary::Add, product, values[2])]
    });
    let accumulate = program(&[Type::F32; 3], |graph, values| vec![graph.binary(Binary::Add, values[0], values[1])]);
    let pass = Pass { accumulate, ..sum(Type::F32) };
    let each = Reduction::new(vec![Type::F32; 2], Vec::new(), vec![pass], Last::Each(scale)).expect("the programs fit");
    assert!(each.is_accumulated(0) && !each.is_accumulated(1) && !each.splits());
}
