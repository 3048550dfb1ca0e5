//! What each operation is in a compiled function: a part of its graph, or what ends it.
//!
//! The table names those that end a graph, with the cause. Every other operation of `docs/operations.md`, and of the list
//! here, is a node whose results have the bits of the operation by itself.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use aten_cuda::compile::compile;
use aten_cuda::{DType, Result, Tensor, fft, linalg, scans};
use common::operations::{Try, drawing, indexing, making, matrices_and_rows, pointwise};

/// Operations that end a graph. How large their results are depends on values, or whether they fail does.
const ENDING: &[(&str, &str)] = &[
    ("item", "values are read"),
    ("linalg.cholesky", "values are read"),
    ("linalg.solve", "values are read"),
    ("linalg.svdvals", "values are read"),
    ("masked_scatter", "values are read"),
    ("masked_select", "values are read"),
    ("nonzero", "values are read"),
    ("normal", "values are read"),
    ("unique", "values are read"),
];

/// Operations beside those of the page.
fn others() -> Vec<(&'static str, Try)> {
    let stream = c10_core::Stream::new(None, 0).unwrap();
    let positive = |x: &Tensor| x.matmul(&x.t()?)?.add(&Tensor::eye(2, 2, x.dtype(), x)?);
    vec![
        ("constant", Box::new(|x| x.add(&Tensor::from_slice(&[1.0_f32, 2.0], &[2])?.cuda(None)?))),
        ("item", Box::new(|x| x.add(x.max()?.item()?))),
        (
            "record_stream",
            Box::new(move |x| {
                x.record_stream(&stream)?;
                x.add(1)
            }),
        ),
        ("norm", Box::new(|x| x.norm(2, (), false, None))),
        ("sum", Box::new(|x| x.sum((), false, None))),
        ("var", Box::new(|x| x.add(1)?.amax([0], false))),
        ("argmax", Box::new(|x| x.argmax(None, false))),
        ("addmm_activation", Box::new(|x| x.select(0, 0)?.addmm_activation(x, x, 1, 1, true))),
        ("linear", Box::new(|x| x.linear(x, Some(&x.select(0, 0)?)))),
        ("einsum", Box::new(|x| aten_cuda::blas::einsum("ij,jk->ik", &[x, x]))),
        ("sort of long rows", Box::new(|x| Ok(x.repeat(&[1, 4000])?.sort(1, true)?.1))),
        ("topk of long rows", Box::new(|x| Ok(x.repeat(&[1, 4000])?.topk(3, 1, true)?.0))),
        ("cumsum of long rows", Box::new(|x| x.repeat(&[1, 40_000])?.cumsum(1, None))),
        ("fft.fft", Box::new(|x| fft::fft(x, None, -1, None)?.view_as_real())),
        ("fft.ifft", Box::new(|x| fft::ifft(x, None, -1, None)?.view_as_real())),
        ("fft.rfft", Box::new(|x| fft::rfft(x, None, -1, None)?.view_as_real())),
        ("fft.irfft", Box::new(|x| fft::irfft(x, None, -1, None))),
        ("linalg.cholesky", Box::new(move |x| linalg::cholesky(&positive(x)?, false))),
        ("linalg.solve", Box::new(move |x| linalg::solve(&positive(x)?, x))),
        ("linalg.qr", Box::new(|x| linalg::qr(x, "complete").and_then(|(q, r)| Tensor::cat(&[&q, &r], 0)))),
        ("linalg.qr without Q", Box::new(|x| Ok(linalg::qr(x, "r")?.1))),
        ("linalg.svdvals", Box::new(|x| linalg::svdvals(x, None))),
    ]
}

fn running() -> Vec<(&'static str, Try)> {
    let apply = |row: &'static aten_cuda::Reduction| -> Try { Box::new(move |x| Ok(row.apply(x, 0)?.remove(0))) };
    scans().map(|row| (row.name, apply(row))).collect()
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap().iter().map(|value| value.to_bits()).collect()
}

/// The causes with which an operation between two others ends the graph; nothing where it is a part of it. Its results are
/// those of the operation by itself.
fn causes(name: &str, run: &Arc<Try>, x: &Tensor) -> Result<Vec<&'static str>> {
    let function = {
        let run = Arc::clone(run);
        move |x: &[Tensor]| Ok(vec![run(&x[0].mul(1)?)?.to_dtype(DType::F64)?.mul(2)?])
    };
    let seeded = || aten_cuda::random::manual_seed_all(7);
    seeded()?;
    let expected: Vec<Vec<u64>> =
        (0..3).map(|_| Ok(bits(&function(std::slice::from_ref(x))?[0]))).collect::<Result<_>>()?;
    let compiled = compile(function);
    seeded()?;
    let found: Vec<Vec<u64>> = (0..3).map(|_| Ok(bits(&compiled.call(&[x])?[0]))).collect::<Result<_>>()?;
    assert_eq!(found, expected, "{name}: {}", compiled.report());
    let report = compiled.report();
    let program = &report.programs[0];
    let causes: Vec<&'static str> = program.breaks.iter().map(|found| found.cause).collect();
    assert_eq!(program.called.is_some(), !causes.is_empty(), "{name}: {report}");
    Ok(causes)
}

fn all() -> Vec<(&'static str, Try)> {
    let families = [pointwise(), indexing(), matrices_and_rows(), making(), drawing(), others(), running()];
    families.into_iter().flatten().collect()
}

#[test]
fn operations_are_nodes_but_those_that_read_values() {
    let _simulated = testkit::simulated_runtime();
    linalg::set_library(Some(testkit::cusolver()));
    fft::set_library(Some(testkit::cufft()));
    let floats = Tensor::from_slice(&[0.5_f32, 0.25, 0.125, 0.75], &[2, 2]).unwrap().cuda(None).unwrap();
    let integers = Tensor::from_slice(&[3_i64, 1, 2, 5], &[2, 2]).unwrap().cuda(None).unwrap();
    let (mut ending, mut tried) = (BTreeMap::new(), 0);
    for (name, run) in all() {
        let run = Arc::new(run);
        let found = causes(name, &run, &floats).or_else(|_| causes(name, &run, &integers)).unwrap();
        tried += 1;
        ending.extend(found.first().map(|&cause| (name, cause)));
    }
    assert!(tried > 150, "{tried} operations");
    assert_eq!(ending, ENDING.iter().copied().collect());
}

#[test]
fn the_page_names_the_operations_that_end_a_graph() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compile.md");
    let page = std::fs::read_to_string(path).unwrap();
    for (name, cause) in ENDING {
        let row = page.lines().find(|line| line.starts_with(&format!("| {cause} |"))).unwrap();
        assert!(row.contains(&format!("`{name}`")), "`{name}` is not in the row of docs/compile.md: {row}");
    }
}
