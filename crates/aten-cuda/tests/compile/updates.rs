//! Many small kernels that become few.

use super::*;

#[test]
fn small_updates_of_equal_sizes_share_kernels() {
    let _simulated = testkit::simulated_runtime();
    let all: Vec<Tensor> = (0..60).map(|at| numbers(&[5, 7], at)).collect();
    let all: Vec<&Tensor> = all.iter().collect();
    let report = same(|x| x.chunks(2).map(|pair| pair[0].sub(&pair[1].mul(0.1)?)).collect(), &all);
    assert_eq!(
        (report.operations, report.kernels.len(), report.kernels[0].operations.len()),
        (60, 1, 60),
        "{report:?}"
    );
}

/// More updates than parameters have room for, in place, of tensors whose elements lie in several orders.
#[test]
fn many_small_updates_are_as_many_kernels_as_parameters_ask_for() {
    let _simulated = testkit::simulated_runtime();
    for sizes in [&[64][..], &[5, 6], &[2, 3, 2, 4]] {
        let all = || -> Vec<Tensor> {
            let turned = |at: i64| {
                let made = numbers(sizes, at);
                let order: Vec<i64> = (0..sizes.len() as i64).rev().collect();
                let other: Vec<i64> = sizes.iter().rev().copied().collect();
                if at % 3 == 0 { numbers(&other, at).permute(&order).unwrap() } else { made }
            };
            (0..240).map(turned).collect()
        };
        let update = |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let made = x.chunks(3).map(|of| {
                of[0].sub_(&of[1].mul(0.1)?)?;
                of[1].mul(0.9)?.add(&of[2])
            });
            made.collect()
        };
        let compiled = compile(update);
        let (eager, own) = (all(), all());
        for call in 0..3 {
            let expected = update(&eager).unwrap();
            let found = compiled.call(&own.iter().collect::<Vec<_>>()).unwrap();
            for (expected, found) in expected.iter().chain(&eager).zip(found.iter().chain(&own)) {
                assert_eq!(bits(expected), bits(found), "call {call}");
            }
        }
        let report = compiled.report();
        let kernels = report.programs[0].kernels.len();
        assert!((4..=7).contains(&kernels), "{kernels} kernels of {sizes:?}");
    }
}

/// Small updates of different sizes are one kernel, whose blocks are shared out among them.
#[test]
fn small_updates_of_different_sizes_share_kernels() {
    let _simulated = testkit::simulated_runtime();
    let sizes: [&[i64]; 6] = [&[5, 7], &[128], &[129], &[1], &[3, 4, 50], &[2, 2, 2, 2]];
    let all = || (0..36_usize).map(|at| numbers(sizes[at / 2 % 6], at as i64)).collect::<Vec<Tensor>>();
    let update: Function = |x| {
        x.chunks(2)
            .map(|pair| {
                pair[0].sub_(&pair[1].mul(0.1)?)?;
                pair[1].mul(0.5)?.to_dtype(DType::BF16)
            })
            .collect()
    };
    let compiled = compile(update);
    let (eager, own) = (all(), all());
    for call in 0..4 {
        let expected = update(&eager).unwrap();
        let found = compiled.call(&own.iter().collect::<Vec<_>>()).unwrap();
        for (expected, found) in expected.iter().chain(&eager).zip(found.iter().chain(&own)) {
            assert_eq!(bits(expected), bits(found), "call {call}");
        }
    }
    let report = compiled.report();
    let kernels = &report.programs[0].kernels;
    assert_eq!((kernels.len(), kernels[0].operations.len(), kernels[0].outputs.len()), (1, 72, 36), "{report}");
}

/// The time for putting kernels together does not grow with the square of their number.
#[test]
fn thousands_of_small_updates_are_compiled() {
    let _simulated = testkit::simulated_runtime();
    let all: Vec<Tensor> = (0..3000).map(|at| numbers(&[1 + at % 40], at)).collect();
    let function: Function = |x| x.iter().map(|x| x.mul(0.5)?.add(x)).collect();
    let report = same(function, &all.iter().collect::<Vec<_>>());
    assert_eq!(report.operations, 6000);
    assert!((3000 / 64..=3000 / 50).contains(&report.kernels.len()), "{} kernels", report.kernels.len());
}

/// What reads what another one writes, what is read in another order and what is large stand by themselves.
#[test]
fn what_depends_on_other_sizes_or_is_large_stands_by_itself() {
    let _simulated = testkit::simulated_runtime();
    let (x, y, large) = (numbers(&[6, 8], 1), numbers(&[8], 2), numbers(&[300, 300], 3));
    let cases: [(Function, usize); 4] = [
        (|x| Ok(vec![x[0].mul(2)?, x[1].add(1)?]), 1),
        (|x| Ok(vec![x[0].t()?.contiguous()?.mul(2)?, x[1].add(1)?]), 2),
        (|x| Ok(vec![x[2].mul(2)?, x[1].add(1)?]), 2),
        (
            |x| {
                let made = x[0].mul(2)?;
                x[0].select(0, 0)?.add_(&x[1])?;
                Ok(vec![made, x[1].mul(3)?])
            },
            2,
        ),
    ];
    for (at, (function, kernels)) in cases.into_iter().enumerate() {
        let inputs = || [x.copy().unwrap(), y.copy().unwrap(), large.copy().unwrap()];
        let expected = function(&inputs()).unwrap();
        let compiled = compile(function);
        for _ in 0..3 {
            let own = inputs();
            let found = compiled.call(&own.iter().collect::<Vec<_>>()).unwrap();
            expected.iter().zip(&found).for_each(|(expected, found)| assert_eq!(bits(expected), bits(found)));
        }
        let report = compiled.report();
        assert_eq!(report.programs[0].kernels.len(), kernels, "case {at}\n{report}");
    }
}
