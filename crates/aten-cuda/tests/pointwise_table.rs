//! Every row of the table of pointwise operations, for every dtype that it accepts: contiguous, transposed, broadcast and
//! empty operands with special values give on a simulated device what they give on the host.
//!
//! The results are equal bit by bit, but for the bits of NaNs, where PTX defines them; where a function is computed by a
//! library on each side, they are near.

mod support;

use aten_cuda::{DType, Operand, Operation, Result, Scalar, Tensor, table};
use support::{count_of, numbers, special_tensor, unit};

/// Units in the last place that two approximations of a function may differ by: each is within the bound that its library
/// states, of which the largest, for functions that are made of several others, is four.
const UNITS: f64 = 8.0;

/// The units for an operation. A complex power is e to the power of a product, whose error counts as often as it is large.
fn units(operation: &Operation, dtype: DType) -> f64 {
    if operation.name == "pow" && dtype.is_complex() { 64.0 * UNITS } else { UNITS }
}

/// The magnitude at which the unit is taken at least: these functions cross zero, or come near to it, by a difference of
/// numbers of about one, as they do in torch.
fn floor(operation: &Operation, dtype: DType) -> f64 {
    match operation.name {
        "lgamma" | "digamma" => 1.0,
        "gelu" | "gelu_tanh" if dtype == DType::F64 => 1.0,
        _ => 0.0,
    }
}

/// Whether the host refuses zeros in the second operand.
fn divides(operation: &Operation, dtype: DType) -> bool {
    dtype.is_integral() && ["div_trunc", "floor_divide", "remainder", "fmod"].contains(&operation.name)
}

fn without_zeros(tensor: &Tensor) -> Tensor {
    tensor.eq(0).and_then(|is_zero| tensor.masked_fill(&is_zero, 1)).expect("it succeeds")
}

/// Operands of one layout, on the host. The last ones are broadcast along the first dimension, the first ones along the
/// second, so that every pair of special elements meets.
fn operands(operation: &Operation, dtype: DType, layout: &str) -> Vec<Tensor> {
    let special = special_tensor(dtype);
    let count = count_of(dtype);
    (0..operation.arity)
        .map(|at| {
            let is_condition = operation.takes_condition && at == 0;
            let values = match at {
                _ if is_condition => special_tensor(DType::Bool),
                1 if divides(operation, dtype) => without_zeros(&special),
                _ => special.clone(),
            };
            let own = values.numel();
            let sizes = [count, count];
            let spread = match at % 3 {
                0 if own == count => {
                    values.view(&[count, 1]).expect("it succeeds").expand(&sizes).expect("it succeeds")
                }
                1 => values.view(&[1, own]).expect("it succeeds").expand(&sizes).expect("it succeeds"),
                // Neither rows nor columns: the elements in turn, with a step that has no divisor in common with them.
                _ => {
                    let bytes = values.to_bytes().expect("it succeeds");
                    let width = values.element_size();
                    let place = |at: usize| (at * 7 + at / 5) % usize::try_from(own).expect("it fits") * width;
                    let all = (0..usize::try_from(count * count).expect("it fits"))
                        .flat_map(|at| bytes[place(at)..place(at) + width].to_vec());
                    Tensor::from_bytes(&all.collect::<Vec<u8>>(), &sizes, values.dtype()).expect("it succeeds")
                }
            };
            match layout {
                "contiguous" => spread.contiguous().expect("it succeeds"),
                "transposed" => {
                    spread.t().expect("it succeeds").contiguous().expect("it succeeds").t().expect("it succeeds")
                }
                "broadcast" => spread,
                _ => spread.narrow(0, 0, 0).expect("it succeeds"),
            }
        })
        .collect()
}

fn run(operation: &'static Operation, operands: &[Tensor]) -> Result<Tensor> {
    let all: Vec<Operand<'_>> = operands.iter().map(Operand::from).collect();
    let numbers: Vec<Scalar> = [2, 3, -5].into_iter().take(operation.numbers).map(Scalar::Int).collect();
    operation.apply(&all, &numbers)
}

/// The first place where both differ.
fn compare(operation: &'static Operation, dtype: DType, layout: &str) -> std::result::Result<(), String> {
    let name = format!("{} of {dtype}, {layout}", operation.name);
    let host = operands(operation, dtype, layout);
    let device: Vec<Tensor> = host.iter().map(|tensor| tensor.cuda(None).expect("it succeeds")).collect();
    let expected = run(operation, &host).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found = run(operation, &device).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()), "{name}");
    // torch's host gives a contiguous result of `logsigmoid`, CUDA one with the layout of the operand.
    if layout != "broadcast" && operation.name != "logsigmoid" {
        // The copy on the device has the layout of the original, unless elements are repeated.
        assert_eq!(found.strides(), expected.strides(), "{name}");
    }
    let (theirs, ours) = (numbers(&found), numbers(&expected));
    let is_exact = operation.is_exact(dtype);
    let (their_bytes, our_bytes) = (found.to_bytes().expect("it succeeds"), expected.to_bytes().expect("it succeeds"));
    let width = (our_bytes.len() / ours.len().max(1)).max(1);
    let parts = if expected.dtype().is_complex() { 2 } else { 1 };
    for (at, (theirs, ours)) in theirs.chunks(parts).zip(ours.chunks(parts)).enumerate() {
        // The error of a part of a complex number is measured by the whole number.
        let magnitude = ours.iter().fold(floor(operation, dtype), |sum, part| sum.hypot(*part));
        for (part, (&theirs, &ours)) in theirs.iter().zip(ours).enumerate() {
            let place = (at * parts + part) * width;
            let same = their_bytes[place..place + width] == our_bytes[place..place + width];
            let both_nan = theirs.is_nan() && ours.is_nan();
            let near =
                !is_exact && (theirs - ours).abs() <= units(operation, dtype) * unit(magnitude, expected.dtype());
            if !(same || both_nan || near) {
                return Err(format!("{name}, element {at}: {ours:e} on the host, {theirs:e} on the device"));
            }
        }
    }
    Ok(())
}

#[test]
fn the_device_gives_what_the_host_gives() {
    let _simulated = testkit::simulated_runtime();
    let mut different = Vec::new();
    for operation in table() {
        for dtype in DType::ALL.into_iter().filter(|&dtype| operation.accepts(dtype)) {
            for layout in ["contiguous", "transposed", "broadcast", "empty"] {
                different.extend(compare(operation, dtype, layout).err());
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn rows_have_names_of_their_own() {
    let mut names: Vec<&str> = table().map(|operation| operation.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 90, "{count}");
}

#[test]
fn what_is_not_accepted_is_an_error() {
    for operation in table() {
        for dtype in DType::ALL.into_iter().filter(|&dtype| !operation.accepts(dtype)) {
            let operands = operands(operation, dtype, "contiguous");
            assert!(run(operation, &operands).is_err(), "{} of {dtype}", operation.name);
        }
    }
}
