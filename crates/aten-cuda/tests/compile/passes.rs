//! Passes over graphs by themselves: operations on constants are worked out, and what is done again is done once.

use super::*;
use aten_cuda::kernel_texts;

/// The text of the only kernel of a function, which gives what it gives without compiling.
fn text(function: Function, x: &Tensor) -> String {
    // A kernel that is known already has no text.
    let texts = kernel_texts(|| compile(function).call(&[x]).map(drop)).unwrap();
    same(function, &[x]);
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    text.text.clone()
}

#[test]
fn operations_on_constants_are_worked_out() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[300], 1);
    let whole = text(
        |x| {
            let constant = Tensor::full(&[300], 2.5, DType::F32, "cuda")?.mul(3)?.add(0.5)?;
            Ok(vec![x[0].maximum(&constant)?])
        },
        &x,
    );
    assert!(whole.contains("0f41000000"), "no 8.0 in\n{whole}");
    assert!(!whole.contains("// mul") && !whole.contains("mul.rn") && !whole.contains("0f40200000"), "{whole}");
    // Rounded to 16 bits in between, as the operations round: 1 + 1/512 is 1.
    let short = text(
        |x| {
            let constant = Tensor::full(&[300], 1, DType::BF16, "cuda")?.add(1.0 / 512.0)?.to_dtype(DType::F32)?;
            Ok(vec![x[0].maximum(&constant)?])
        },
        &x,
    );
    assert!(short.contains("0f3F800000") && !short.contains("0f3B000000"), "{short}");
    // What devices approximate is theirs to compute, and so is what comes to no number.
    let root = text(|x| Ok(vec![x[0].maximum(&Tensor::full(&[300], 2, DType::F32, "cuda")?.exp()?)?]), &x);
    assert!(root.contains("0f40000000") && root.contains("ex2"), "{root}");
    same(|x| Ok(vec![x[0].add(&Tensor::full(&[300], f64::INFINITY, DType::F32, "cuda")?.mul(0)?)?]), &[&x]);
}

/// How many calls of something that was not generated a function makes.
fn calls(function: Function, inputs: &[&Tensor]) -> usize {
    same(function, inputs).kernels.iter().filter(|kernel| kernel.is_call).count()
}

#[test]
fn what_is_done_again_is_done_once() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[24, 40], 1), numbers(&[40, 16], 2));
    let twice: Function = |x| Ok(vec![x[0].mm(&x[1])?.add(1)?.mul(&x[0].mm(&x[1])?)?]);
    assert_eq!(calls(twice, &[&x, &y]), 1);
    // Both are counted, and so are the bytes that the second one would move.
    let report = same(twice, &[&x, &y]);
    assert_eq!(report.operations, 4, "{report:?}");
    let call = report.kernels.iter().find(|kernel| kernel.is_call).unwrap();
    assert_eq!((call.operations.as_slice(), call.unfused), (&["matmul"; 2][..], 2 * (call.read + call.written)));
    // What follows from what is done again is so, too.
    assert_eq!(calls(|x| Ok(vec![x[0].sort(1, false)?.0.sub(&x[0].sort(1, false)?.0.cumsum(1, None)?)?]), &[&x]), 1);
    let through: Function = |x| {
        let [one, other] = [x[0].mm(&x[1])?.t()?, x[0].mm(&x[1])?.t()?];
        Ok(vec![one.mm(&x[0])?.add(&other.mm(&x[0])?)?])
    };
    assert_eq!(calls(through, &[&x, &y]), 2);
    let rows: Function = |x| {
        let least = x[0].argmin(Some(1), false)?;
        Ok(vec![least.clone(), least.add(&x[0].argmin(Some(1), false)?)?])
    };
    let report = same(rows, &[&x]);
    let names: Vec<&str> = report.kernels.iter().flat_map(|kernel| kernel.operations.iter().copied()).collect();
    assert_eq!(names.iter().filter(|name| **name == "argmin").count(), 2, "{report:?}");
}

#[test]
fn what_may_be_something_else_is_done_again() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[24, 40], 1), numbers(&[40, 16], 2));
    // Memory is written in between.
    let changed: Function = |x| {
        let own = x[0].mul(2)?;
        let first = own.mm(&x[1])?;
        own.narrow(0, 0, 5)?.add_(1)?;
        Ok(vec![first.sub(&own.mm(&x[1])?)?])
    };
    assert_eq!(calls(changed, &[&x, &y]), 2);
    // Two results are two memories.
    let [one, other]: [Tensor; 2] = {
        let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].mm(&x[1])?, x[0].mm(&x[1])?]));
        compiled.call(&[&x, &y]).unwrap().try_into().unwrap()
    };
    one.mul_(0).unwrap();
    assert_eq!(bits(&other), bits(&x.mm(&y).unwrap()));
    // Other factors, another order of them, numbers of its own.
    assert_eq!(calls(|x| Ok(vec![x[0].mm(&x[1])?.add(&x[0].abs()?.mm(&x[1])?)?]), &[&x, &y]), 2);
    assert_eq!(calls(|x| Ok(vec![x[0].sort(1, false)?.0.add(&x[0].sort(1, true)?.0)?]), &[&x]), 2);
    // Numbers that are drawn are drawn anew.
    let drawn: Function = |x| {
        let mut made = [x[0].mul(1)?, x[0].mul(1)?];
        for tensor in &mut made {
            *tensor = tensor.dropout(0.5, true)?;
        }
        Ok(vec![made[0].sub(&made[1])?])
    };
    let compiled = compile(drawn);
    for _ in 0..3 {
        assert!(bits(&compiled.call(&[&x]).unwrap()[0]).iter().any(|&bits| bits << 1 != 0));
    }
}
