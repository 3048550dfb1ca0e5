//! Products of compiled functions that take along what follows them: by the simulated cuBLASLt and by the kernels of the
//! crate, against the function as it is and against loops on the host.
//!
//! `COMPILE_DRIVER=real RUST_TEST_THREADS=1` runs what needs no faults (`--skip failing`) on the device and the libraries of
//! the machine; those are of the whole process, so that one test must not run beside another.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use aten_cuda::blas;
use aten_cuda::compile::{CompileOptions, Compiled, Declined, ProgramReport, compile, compile_with};
use aten_cuda::{DType, Result, Tensor};
use c10_core::Stream;
use testkit::{CUresult, Config, Fault, SimulatedRuntime};

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// What an element comes to: of the sum, the bias and what is added.
type Element = fn(f64, f64, f64) -> f64;

/// Which libraries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Libraries {
    Both,
    CublasAlone,
    None,
}

fn is_real() -> bool {
    std::env::var("COMPILE_DRIVER").as_deref() == Ok("real")
}

/// A machine with these libraries; that of the program where a real one is asked for, which has to have both of them.
fn start(libraries: Libraries) -> Option<SimulatedRuntime> {
    let simulated = (!is_real()).then(testkit::simulated_runtime);
    set(libraries);
    simulated
}

/// From now on there are these libraries.
fn set(libraries: Libraries) {
    let is_simulated = !is_real();
    match libraries {
        Libraries::Both if is_simulated => blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt())),
        Libraries::Both => blas::set_libraries(cuda_sys::Cublas::load().ok(), cuda_sys::CublasLt::load().ok()),
        Libraries::CublasAlone if is_simulated => blas::set_libraries(Some(testkit::cublas()), None),
        Libraries::CublasAlone => blas::set_libraries(cuda_sys::Cublas::load().ok(), None),
        Libraries::None => blas::set_libraries(None, None),
    }
}

fn numbers(sizes: &[i64], seed: i64, dtype: DType) -> Tensor {
    let count: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, sizes).unwrap().to_dtype(dtype).unwrap().cuda(None).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    floats(tensor).iter().map(|value| value.to_bits()).collect()
}

fn wide(function: Function) -> Compiled {
    let mut options = CompileOptions::default();
    options.wide_intermediates = true;
    compile_with(function, options)
}

fn called(compiled: &Compiled, inputs: &[Tensor]) -> Vec<Tensor> {
    compiled.call(&inputs.iter().collect::<Vec<_>>()).unwrap()
}

/// Three calls give the bits that the function gives.
fn same(function: Function, inputs: &[Tensor]) -> ProgramReport {
    let compiled = compile(function);
    let expected: Vec<Vec<u64>> = function(inputs).unwrap().iter().map(bits).collect();
    for _ in 0..3 {
        let found: Vec<Vec<u64>> = called(&compiled, inputs).iter().map(bits).collect();
        assert_eq!(found, expected, "{}", compiled.report());
    }
    compiled.report().programs.remove(0)
}

/// Three calls are as near to these numbers as a result of the dtype can be that was rounded once, where the sums have so
/// much room.
fn near(compiled: &Compiled, inputs: &[Tensor], exact: &[f64], room: f64) -> ProgramReport {
    // From one number to the next one, as a part of the smaller.
    let steps = [(DType::BF16, 1.0 / 128.0), (DType::F16, 1.0 / 1024.0), (DType::F32, 1e-6)];
    let step = steps.into_iter().find(|(dtype, _)| *dtype == inputs[0].dtype()).unwrap().1;
    for _ in 0..3 {
        let found = floats(&called(compiled, inputs)[0]);
        assert_eq!(found.len(), exact.len());
        for (at, (found, exact)) in found.iter().zip(exact).enumerate() {
            let most = step * 0.501 * exact.abs() + room;
            assert!((found - exact).abs() <= most, "element {at}: {found} and {exact}\n{}", compiled.report());
        }
    }
    compiled.report().programs.remove(0)
}

/// `a @ b` by loops, with what each element comes to.
fn product(a: &Tensor, b: &Tensor, then: impl Fn(usize, usize, f64) -> f64) -> Vec<f64> {
    let [rows, inner, columns] = [a.sizes()[0], a.sizes()[1], b.sizes()[1]].map(|size| usize::try_from(size).unwrap());
    let (a, b) = (floats(a), floats(b));
    let sum = |row: usize, column: usize| (0..inner).map(|at| a[row * inner + at] * b[at * columns + column]).sum();
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    places.map(|(row, column)| then(row, column, sum(row, column))).collect()
}

fn gelu(value: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044_715 * value.powi(3));
    0.5 * value * (1.0 + inner.tanh())
}

fn refused(report: &ProgramReport) -> Vec<(&'static str, Option<Declined>)> {
    report.epilogues.iter().map(|epilogue| (epilogue.operations[0], epilogue.refused)).collect()
}

/// Matrices of (24, 40) and (40, 32), a bias of 32, a matrix of (24, 32).
fn operands(dtype: DType) -> Vec<Tensor> {
    let sizes: [&[i64]; 4] = [&[24, 40], &[40, 32], &[32], &[24, 32]];
    sizes.into_iter().zip(1..).map(|(sizes, seed)| numbers(sizes, seed, dtype)).collect()
}

/// What a product takes along is one call of the library, which gives what loops on the host give, rounded once.
#[test]
fn a_library_does_what_follows_a_product() {
    let cases: [(Function, &str, Element); 7] = [
        (|x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]), "add", |sum, bias, _| sum + bias),
        (|x| Ok(vec![x[2].add(&x[0].mm(&x[1])?)?.relu()?]), "add + relu", |sum, bias, _| (sum + bias).max(0.0)),
        (|x| Ok(vec![x[0].mm(&x[1])?.relu()?]), "relu", |sum, _, _| sum.max(0.0)),
        (|x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.relu()?]), "relu", |sum, bias, _| (sum + bias).max(0.0)),
        (|x| Ok(vec![x[0].mm(&x[1])?.add(&x[3])?]), "add", |sum, _, more| sum + more),
        (|x| Ok(vec![x[0].linear(&x[1].t()?, &x[2])?.add(&x[3])?]), "add", |sum, bias, more| sum + bias + more),
        (
            |x| Ok(vec![x[0].mm(&x[1])?.add(&x[3])?.add(&x[2])?.relu()?]),
            "add + add + relu",
            |sum, bias, more| (sum + bias + more).max(0.0),
        ),
    ];
    let simulated = start(Libraries::Both);
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let x = operands(dtype);
        let (bias, more) = (floats(&x[2]), floats(&x[3]));
        for (function, operations, exact) in cases {
            let exact = product(&x[0], &x[1], |row, column, sum| exact(sum, bias[column], more[row * 32 + column]));
            let compiled = wide(function);
            let report = near(&compiled, &x, &exact, 1e-5);
            let [taken] = report.epilogues.as_slice() else { panic!("{report:?}") };
            assert_eq!((taken.operations.join(" + ").as_str(), taken.refused), (operations, None), "{dtype}");
            assert_eq!((report.kernels.len(), report.kernels[0].is_call), (1, true), "{report:?}");
            assert_eq!(report.kernels[0].operations.join(" + "), format!("matmul + {operations}"));
            // Each operation less writes its operand and reads it again no more.
            let steps = i64::try_from(taken.operations.len()).unwrap();
            let saved = steps * 2 * x[3].nbytes() as i64;
            assert_eq!((taken.saved, report.kernels[0].saved()), (saved, saved), "{report:?}");
            assert!(compiled.report().to_string().contains(&format!("takes {operations} along, which saves {saved}")));
            let Some(simulated) = &simulated else { continue };
            drop(simulated.machine().take_library_calls());
            called(&compiled, &x);
            let calls: Vec<&str> = simulated.machine().take_library_calls().iter().map(|call| call.symbol).collect();
            assert!(calls.ends_with(&["cublasLtMatmul"]), "{calls:?}");
            assert_eq!(calls.iter().filter(|name| name.contains("emm") || **name == "cublasLtMatmul").count(), 1);
        }
    }
}

#[test]
fn gelu_is_taken_along_where_it_is_rounded_to_16_bits() {
    let _simulated = start(Libraries::Both);
    let function: Function = |x| Ok(vec![x[0].linear(&x[1].t()?, &x[2])?.gelu_tanh()?]);
    for dtype in [DType::BF16, DType::F16] {
        let x = operands(dtype);
        let bias = floats(&x[2]);
        let exact = product(&x[0], &x[1], |_, column, sum| gelu(sum + bias[column]));
        let report = near(&wide(function), &x, &exact, 2e-3);
        assert_eq!((report.kernels.len(), refused(&report)), (1, vec![("gelu_tanh", None)]));
    }
    let compiled = wide(function);
    called(&compiled, &operands(DType::F32));
    assert_eq!(refused(&compiled.report().programs[0]), [("gelu_tanh", Some(Declined::Bits))]);
}

/// Batches of matrices, and results that are seen in other sizes between the product and what follows it.
#[test]
fn batches_and_reshaped_products_take_it_along() {
    for libraries in [Libraries::Both, Libraries::None] {
        let _simulated = start(libraries);
        let function: Function = |x| {
            let batch = x[0].bmm(&x[1])?.add(&x[2])?.relu()?;
            let linear = x[3].linear(&x[4], None)?.view(&[6, 4, 5, 8])?.add(&x[5])?;
            Ok(vec![batch, linear])
        };
        let sizes: [&[i64]; 6] = [&[3, 24, 16], &[3, 16, 8], &[8], &[6, 4, 24], &[40, 24], &[5, 8]];
        let x: Vec<Tensor> = sizes.into_iter().zip(1..).map(|(sizes, seed)| numbers(sizes, seed, DType::F32)).collect();
        let compiled = wide(function);
        let expected = function(&x).unwrap();
        for _ in 0..3 {
            for (found, expected) in called(&compiled, &x).iter().zip(&expected) {
                assert_eq!(found.sizes(), expected.sizes());
                let pairs = floats(found).into_iter().zip(floats(expected));
                pairs.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-5, "{found} and {expected}"));
            }
        }
        let report = &compiled.report().programs[0];
        assert_eq!((report.kernels.len(), report.operations), (2, 5), "{report:?}");
        assert_eq!(refused(report), [("add", None), ("add", None)], "{libraries:?}");
    }
}

/// Without being asked, what the library would round otherwise is left to the kernel behind the product.
#[test]
fn bits_stay_unless_others_are_asked_for() {
    let functions: [Function; 4] = [
        |x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]),
        |x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.relu()?]),
        |x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.gelu_tanh()?]),
        |x| Ok(vec![x[0].mm(&x[1])?.add(&x[3])?.relu()?]),
    ];
    let _simulated = start(Libraries::Both);
    for (function, dtype) in
        functions.into_iter().flat_map(|function| [(function, DType::BF16), (function, DType::F32)])
    {
        let report = same(function, &operands(dtype));
        assert_eq!(report.kernels.len(), 2, "{report:?}");
        assert!(matches!(refused(&report)[..], [(_, Some(Declined::Bits))]), "{report:?}");
    }
}

/// The kernels of the crate add what comes last in the precision of their sums, which is that of the operation.
#[test]
fn sums_of_the_own_kernels_have_the_bits_of_the_operations() {
    let _simulated = start(Libraries::None);
    let taken: [Function; 3] = [
        |x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]),
        |x| Ok(vec![x[0].mm(&x[1])?.add(&x[3])?]),
        |x| Ok(vec![x[3].addmm(&x[0], &x[1], 0.5, 1)?.add(&x[2])?]),
    ];
    let large = |dtype| -> Vec<Tensor> {
        let sizes: [&[i64]; 4] = [&[70, 90], &[90, 50], &[50], &[70, 50]];
        sizes.into_iter().zip(1..).map(|(sizes, seed)| numbers(sizes, seed, dtype)).collect()
    };
    for (function, dtype) in taken.into_iter().flat_map(|function| [(function, DType::F32), (function, DType::F64)]) {
        let report = same(function, &large(dtype));
        assert_eq!((report.kernels.len(), refused(&report)), (1, vec![("add", None)]), "{report:?}");
    }
    let left: [(Function, DType); 4] = [
        (|x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]), DType::BF16),
        (|x| Ok(vec![x[0].mm(&x[1])?.relu()?]), DType::F32),
        (|x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.add(&x[3])?]), DType::F32),
        (|x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 3)?.add(&x[3])?]), DType::F64),
    ];
    for (function, dtype) in left {
        let report = same(function, &large(dtype));
        assert!(matches!(refused(&report)[..], [(_, Some(Declined::Bits))]), "{report:?}");
    }
    // A small product goes a way of its own, whose sums are others.
    let report = same(taken[0], &operands(DType::F32));
    assert_eq!(refused(&report), [("add", Some(Declined::Shape))], "{report:?}");
}

/// A program that was made without libraries, and called when there are some.
#[test]
fn a_library_that_comes_later_computes_the_operations_one_after_another() {
    let _simulated = start(Libraries::None);
    let x: Vec<Tensor> = vec![
        numbers(&[70, 90], 1, DType::F32),
        numbers(&[90, 50], 2, DType::F32),
        numbers(&[50], 3, DType::F32),
        numbers(&[70, 50], 4, DType::F32),
    ];
    let functions: [Function; 2] =
        [|x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]), |x| Ok(vec![x[0].mm(&x[1])?.add(&x[3])?])];
    for function in functions {
        set(Libraries::None);
        let compiled = compile(function);
        (0..3).for_each(|_| drop(called(&compiled, &x)));
        assert_eq!(compiled.report().programs[0].kernels.len(), 1);
        set(Libraries::Both);
        let expected = function(&x).unwrap();
        assert_eq!(bits(&called(&compiled, &x)[0]), bits(&expected[0]));
    }
}

#[test]
fn each_reason_against_it_is_named() {
    let cases: [(Libraries, Function, Declined); 12] = [
        // cuBLASLt's GELU is that by way of a hyperbolic tangent, and no kernel scales what was summed.
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.gelu()?]), Declined::Operation),
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.mul(0.125)?]), Declined::Operation),
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.sigmoid()?]), Declined::Operation),
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.add(1)?]), Declined::Operation),
        (Libraries::Both, |x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.add(&x[2])?]), Declined::Operation),
        (Libraries::CublasAlone, |x| Ok(vec![x[0].mm(&x[1])?.add(&x[2])?]), Declined::Library),
        // Of one row; and of a sum that lies otherwise.
        (Libraries::Both, |x| Ok(vec![x[0].narrow(0, 3, 1)?.mm(&x[1])?.relu()?]), Declined::Shape),
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.add(&x[3].view(&[32, 24])?.t()?)?]), Declined::Shape),
        (
            Libraries::Both,
            |x| {
                let made = x[0].mm(&x[1])?;
                Ok(vec![made.relu()?, made])
            },
            Declined::Read,
        ),
        (Libraries::Both, |x| Ok(vec![x[0].mm(&x[1])?.relu()?.mul(&x[3])?]), Declined::Fused),
        (
            Libraries::Both,
            |x| {
                let made = x[0].mm(&x[1])?;
                x[0].add_(0)?;
                Ok(vec![made.relu()?])
            },
            Declined::Order,
        ),
        (
            Libraries::Both,
            |x| {
                let made = x[0].mm(&x[1])?;
                let side = Stream::new(None, 0)?;
                side.wait_stream(&c10_core::Runtime::current().streams().current(c10_core::DeviceIndex(0))?)?;
                Ok(vec![made.relu()?])
            },
            Declined::Order,
        ),
    ];
    for (at, (libraries, function, why)) in cases.into_iter().enumerate() {
        let _simulated = start(libraries);
        let x = operands(DType::BF16);
        let expected = function(&x).unwrap();
        let compiled = wide(function);
        for _ in 0..3 {
            for (found, expected) in called(&compiled, &x).iter().zip(&expected) {
                let pairs = floats(found).into_iter().zip(floats(expected));
                pairs.for_each(|(found, expected)| assert!((found - expected).abs() <= 0.05 * expected.abs() + 0.02));
            }
        }
        let report = compiled.report();
        assert_eq!(refused(&report.programs[0])[0].1, Some(why), "case {at}\n{report}");
        assert!(report.to_string().contains(" along: "), "{report}");
        assert!(report.to_html().contains("Products and what follows them"));
    }
}

/// What no product takes along is a kernel behind it, with the bits of the operations.
#[test]
fn exact_gelu_and_scaling_stay_operations_of_their_own() {
    let functions: [Function; 3] = [
        |x| Ok(vec![x[0].mm(&x[1])?.gelu()?]),
        |x| Ok(vec![x[0].mm(&x[1])?.mul(0.3)?]),
        |x| Ok(vec![x[2].addmm(&x[0], &x[1], 1, 1)?.mul(0.3)?.gelu()?]),
    ];
    for libraries in [Libraries::Both, Libraries::None] {
        let _simulated = start(libraries);
        for (function, dtype) in
            functions.into_iter().flat_map(|function| [(function, DType::BF16), (function, DType::F32)])
        {
            let report = same(function, &operands(dtype));
            assert_eq!(report.kernels.len(), 2, "{report:?}");
            assert_eq!(refused(&report)[0].1, Some(Declined::Operation), "{report:?}");
        }
    }
}

/// Two products of which each could take the sum along: one does. What a kernel computes on the way is not written for it.
#[test]
fn a_product_takes_along_a_sum_with_what_is_in_memory() {
    let _simulated = start(Libraries::Both);
    let x = operands(DType::BF16);
    let exact = product(&x[0], &x[1], |_, _, sum| 1.5 * sum);
    let compiled = wide(|x| Ok(vec![x[0].mm(&x[1])?.add(&x[0].mm(&x[1].mul(0.5)?)?)?]));
    let report = near(&compiled, &x, &exact, 0.02);
    assert_eq!((report.kernels.len(), refused(&report)), (3, vec![("add", None)]), "{report:?}");
    let compiled = wide(|x| Ok(vec![x[0].mm(&x[1])?.add(&x[3].mul(0.5)?)?]));
    let more = floats(&x[3]);
    let exact = product(&x[0], &x[1], |row, column, sum| sum + 0.5 * more[row * 32 + column]);
    let report = near(&compiled, &x, &exact, 0.02);
    assert_eq!((report.kernels.len(), refused(&report)), (2, vec![("add", Some(Declined::Fused))]), "{report:?}");
}

/// A sum that runs through layers, each of which reads it and adds to it, is written by the products that add to it.
#[test]
fn sums_that_are_read_several_times_are_written_by_products() {
    let _simulated = start(Libraries::Both);
    let function: Function = |x| {
        let mut state = x[0].clone();
        for _ in 0..3 {
            let inner = state.layer_norm(&[32], None, None, 1e-5)?;
            state = state.add(&inner.linear(&x[1], &x[2])?)?;
        }
        Ok(vec![state])
    };
    let sizes: [&[i64]; 3] = [&[4, 6, 32], &[32, 32], &[32]];
    let x: Vec<Tensor> = sizes.into_iter().zip(1..).map(|(sizes, seed)| numbers(sizes, seed, DType::F32)).collect();
    let compiled = wide(function);
    let expected = floats(&function(&x).unwrap()[0]);
    for _ in 0..3 {
        let found = floats(&called(&compiled, &x)[0]);
        found.iter().zip(&expected).for_each(|(found, expected)| assert!((found - expected).abs() < 1e-4));
    }
    let report = &compiled.report().programs[0];
    assert_eq!(refused(report), [("add", None); 3], "{report:?}");
    assert_eq!(report.kernels.len(), 6, "{}", compiled.report());
}

/// A factor that was copied to lie otherwise is read where it lay; what follows the product is taken along all the same.
#[test]
fn copies_for_products_are_left_out() {
    let cases: [(Function, std::result::Result<usize, Declined>); 10] = [
        (|x| Ok(vec![x[0].mm(&x[0].t()?.contiguous()?)?.relu()?]), Ok(1)),
        (|x| Ok(vec![x[0].t()?.contiguous()?.mm(&x[0].copy()?)?]), Ok(1)),
        (|x| Ok(vec![x[3].bmm(&x[3].transpose(1, 2)?.contiguous()?)?.add(&x[4])?]), Ok(1)),
        // Batches that lie between the rows, and two products of one copy.
        (
            |x| {
                let copy = x[3].transpose(0, 1)?.contiguous()?;
                Ok(vec![copy.bmm(&x[5])?, copy.view(&[24, 16])?.narrow(0, 0, 3)?.mm(&x[5].select(0, 0)?)?])
            },
            Ok(2),
        ),
        // Every third row and every other element, a copy that is a result, one that a kernel reads, one that is computed.
        (|x| Ok(vec![x[0].as_strided(&[8, 8], &[72, 2], None)?.contiguous()?.mm(&x[2])?]), Err(Declined::Shape)),
        (|x| Ok(vec![x[0].narrow(1, 1, 8)?.contiguous()?.mm(&x[2])?]), Err(Declined::Shape)),
        (
            |x| {
                let copy = x[2].t()?.contiguous()?;
                Ok(vec![x[2].mm(&copy)?, copy])
            },
            Err(Declined::Read),
        ),
        (
            |x| {
                let copy = x[2].t()?.contiguous()?;
                Ok(vec![x[2].mm(&copy)?, copy.add(1)?])
            },
            Err(Declined::Read),
        ),
        (|x| Ok(vec![x[2].mm(&x[2].mul(2)?.t()?.contiguous()?)?]), Err(Declined::Fused)),
        (
            |x| {
                let copy = x[2].t()?.contiguous()?;
                x[2].add_(0)?;
                Ok(vec![x[2].mm(&copy)?])
            },
            Err(Declined::Order),
        ),
    ];
    let sizes: [&[i64]; 6] = [&[24, 24], &[24], &[8, 8], &[3, 8, 16], &[8], &[8, 16, 8]];
    for libraries in [Libraries::Both, Libraries::None] {
        let _simulated = start(libraries);
        for (at, (function, wanted)) in cases.iter().enumerate() {
            let x: Vec<Tensor> =
                sizes.into_iter().zip(1..).map(|(sizes, seed)| numbers(sizes, seed, DType::F32)).collect();
            let expected = function(&x).unwrap();
            let compiled = wide(*function);
            for _ in 0..3 {
                for (found, expected) in called(&compiled, &x).iter().zip(&expected) {
                    assert_eq!((found.sizes(), found.strides()), (expected.sizes(), expected.strides()));
                    let pairs = floats(found).into_iter().zip(floats(expected));
                    pairs.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-5, "case {at}"));
                }
            }
            let report = compiled.report();
            let program = &report.programs[0];
            let copy = program.copies.iter().find(|copy| copy.refused.is_some()).unwrap_or(&program.copies[0]);
            let found = copy.refused.map_or(Ok(copy.products), Err);
            assert_eq!(found, *wanted, "case {at}\n{report}");
            assert_eq!(copy.saved > 0, wanted.is_ok(), "case {at}\n{report}");
            let does_products = program.kernels.iter().all(|kernel| kernel.operations.contains(&"matmul"));
            assert_eq!(does_products, wanted.is_ok(), "case {at}\n{report}");
            assert!(report.to_string().contains("a copy for") && report.to_html().contains("Copies for products"));
        }
    }
    let _simulated = start(Libraries::Both);
    let report = same(cases[0].0, &[numbers(&[24, 24], 1, DType::F32)]);
    assert_eq!(report.copies[0].refused, Some(Declined::Bits), "{report:?}");
}

#[test]
fn failing_calls_leave_nothing_behind() {
    let function: Function = |x| Ok(vec![x[0].mul(2)?.mm(&x[1])?.add(&x[2])?.relu()?.mm(&x[1].t()?)?.add(&x[0])?]);
    let expected = {
        let _simulated = SimulatedRuntime::new(Config::default());
        blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
        called(&wide(function), &operands(DType::F32))[0].to_vec::<f32>().unwrap()
    };
    let calls = [
        ("cublasLtMatmul", 13, 7),
        ("cublasLtMatmulDescSetAttribute", 7, 8),
        ("cublasLtMatmulAlgoGetHeuristic", 15, 3),
        ("cuMemAlloc_v2", 2, 8),
        ("cuLaunchKernel", 2, 5),
    ];
    let mut failed = 0;
    for (call, code, count) in calls {
        for occurrence in 1..count {
            let simulated = SimulatedRuntime::new(Config::default());
            blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
            let x = operands(DType::F32);
            simulated.machine().inject(Fault { call, occurrence, code: CUresult(code) });
            let compiled = wide(function);
            for _ in 0..4 {
                match compiled.call(&x.iter().collect::<Vec<_>>()) {
                    Ok(made) => assert_eq!(made[0].to_vec::<f32>().unwrap(), expected, "{call} {occurrence}"),
                    Err(_) => failed += 1,
                }
            }
            assert_eq!(called(&compiled, &x)[0].to_vec::<f32>().unwrap(), expected, "{call} {occurrence}");
        }
    }
    assert!(failed >= 15, "{failed} calls failed");
}
