//! Rows of products of matrices: by the installed libraries, and by the kernels of the crate alone.

use aten_cuda::blas::{self, Fp32Precision};
use aten_cuda::{DType, Tensor, tunable};

use bench::Failure;

use crate::raw;
use crate::rows::{Beneath, Row, Unit, Work};

/// The rows in the order of the table. A name that begins with `own` is computed without a library.
pub(crate) const ROWS: &[Row] = &[
    row("mm bf16 8192", 2, |small| by_library(small, [1, 8192, 8192, 8192], DType::BF16)),
    row("mm f16 8192", 2, |small| by_library(small, [1, 8192, 8192, 8192], DType::F16)),
    row("mm tf32 8192", 2, |small| {
        let work = by_library(small, [1, 8192, 8192, 8192], DType::F32)?;
        blas::set_matmul_fp32_precision(Fp32Precision::Tf32)?;
        Ok(work)
    }),
    row("mm f32 8192", 1, |small| by_library(small, [1, 8192, 8192, 8192], DType::F32)),
    row("mm bf16 4096", 4, |small| by_library(small, [1, 4096, 4096, 4096], DType::BF16)),
    row("mm bf16 16 x 4096", 40, |small| by_library(small, [1, 16, 4096, 4096], DType::BF16)),
    row("bmm f32 64 of 512", 4, |small| by_library(small, [64, 512, 512, 512], DType::F32)),
    row("linear gelu bf16", 4, |small| {
        libraries(true);
        linear_gelu(small)
    }),
    row("own linear gelu bf16", 4, |small| {
        libraries(false);
        linear_gelu(small)
    }),
    row("own mm bf16 8192", 2, |small| alone(small, [1, 8192, 8192, 8192], DType::BF16)),
    row("own mm f16 8192", 2, |small| alone(small, [1, 8192, 8192, 8192], DType::F16)),
    row("own mm bf16 4096", 4, |small| alone(small, [1, 4096, 4096, 4096], DType::BF16)),
    row("own mm f32 1000", 10, |small| alone(small, [1, 1000, 1000, 1000], DType::F32)),
    row("own mm bf16 512", 50, |small| alone(small, [1, 512, 512, 512], DType::BF16)),
    row("own mm bf16 1 x 4096", 50, |small| alone(small, [1, 1, 4096, 4096], DType::BF16)),
    row("own mm f32 1 x 4096", 50, |small| alone(small, [1, 1, 4096, 4096], DType::F32)),
    row("own bmm bf16 4096 of 64", 20, |small| alone(small, [4096, 64, 64, 64], DType::BF16)),
    Row {
        name: "small mm",
        unit: Unit::Nanoseconds,
        calls: 200,
        prepare: |_| {
            libraries(true);
            let a = Tensor::randn(&[64, 64], DType::F32, "cuda", None)?;
            Ok(Work::new(1.0, move || a.mm(&a)))
        },
    },
    Row {
        name: "small mm over raw cuBLAS",
        unit: Unit::Nanoseconds,
        calls: 200,
        prepare: |_| {
            libraries(true);
            let a = Tensor::randn(&[64, 64], DType::F32, "cuda", None)?;
            let beneath = raw::Gemm::new([a.copy()?, a.clone(), a.clone()])?;
            let beneath: Beneath = Box::new(move || beneath.launch());
            Ok(Work { beneath: Some(beneath), ..Work::new(1.0, move || a.mm(&a)) })
        },
    },
    // The tuner stays on: this is the last row of products.
    row("linear gelu bf16 tuned", 4, |small| {
        libraries(true);
        let file = std::env::temp_dir().join(format!("tensors-{}.csv", std::process::id()));
        tunable::set_filename(&file.to_string_lossy(), false);
        tunable::enable(true);
        linear_gelu(small)
    }),
];

const fn row(name: &'static str, calls: u32, prepare: fn(bool) -> Result<Work, Failure>) -> Row {
    Row { name, unit: Unit::TeraflopPerSecond, calls, prepare }
}

/// A product with a bias and GELU.
fn linear_gelu(small: bool) -> Result<Work, Failure> {
    let [rows, inner, columns] = if small { [64; 3] } else { [8192, 1024, 4096] };
    let input = Tensor::randn(&[rows, inner], DType::BF16, "cuda", None)?;
    let weight = Tensor::randn(&[columns, inner], DType::BF16, "cuda", None)?.t()?;
    let bias = Tensor::randn(&[columns], DType::BF16, "cuda", None)?;
    let amount = flops([1, rows, inner, columns]);
    Ok(Work::new(amount, move || bias.addmm_activation(&input, &weight, 1, 1, true)))
}

/// With the libraries of the system where there are some, or with none.
fn libraries(are_used: bool) {
    let found = |is_used: bool| is_used.then(|| (cuda_sys::Cublas::load().ok(), cuda_sys::CublasLt::load().ok()));
    let (cublas, lt) = found(are_used).unwrap_or_default();
    blas::set_libraries(cublas, lt);
}

fn by_library(small: bool, shape: [i64; 4], dtype: DType) -> Result<Work, Failure> {
    libraries(true);
    product(small, shape, dtype)
}

fn alone(small: bool, shape: [i64; 4], dtype: DType) -> Result<Work, Failure> {
    libraries(false);
    product(small, shape, dtype)
}

#[expect(clippy::cast_precision_loss, reason = "counts of operations")]
fn flops([batches, m, k, n]: [i64; 4]) -> f64 {
    2.0 * (batches * m) as f64 * (k * n) as f64
}

/// Batches of (m, k) by (k, n).
fn product(small: bool, shape: [i64; 4], dtype: DType) -> Result<Work, Failure> {
    blas::set_matmul_fp32_precision(Fp32Precision::Ieee)?;
    let [batches, m, k, n] = shape.map(|size| if small { size.min(64) } else { size });
    let a = Tensor::randn(&[batches, m, k], dtype, "cuda", None)?;
    let b = Tensor::randn(&[batches, k, n], dtype, "cuda", None)?;
    let amount = flops([batches, m, k, n]);
    if batches > 1 {
        return Ok(Work::new(amount, move || a.bmm(&b)));
    }
    let (a, b) = (a.select(0, 0)?, b.select(0, 0)?);
    Ok(Work::new(amount, move || a.mm(&b)))
}
