//! A kernel of every kind that is generated: each row of the tables in each dtype, over elements that lie one after another
//! and that do not, and rows along each dimension.
//!
//! The assembler reads these texts; what they compute, other tests compare.

use std::path::Path;

use aten_cuda::{
    CrossEntropy, DType, Error, Operand, Operation, Result, Scalar, Tensor, TensorError, kernel_texts_for, reductions,
    scans, table,
};
use testkit::{Config, Simulation};

use crate::common::write_texts;

type Failure = Box<dyn std::error::Error>;

/// Compute capabilities that texts are written for, as 10 * major + minor.
const TARGETS: [u32; 2] = [75, 80];

/// Writes the texts for each compute capability into a folder of that name, each into a file that is named after its
/// fingerprint.
///
/// # Errors
/// A call fails, or a file cannot be written.
pub fn write(folder: &Path) -> std::result::Result<(), Failure> {
    for target in TARGETS {
        let simulation = Simulation::new(Config::default());
        let _bound = simulation.runtime().bind();
        write_texts(&folder.join(target.to_string()), &kernel_texts_for(target, calls)?)?;
    }
    Ok(())
}

fn calls() -> Result<()> {
    for dtype in DType::ALL {
        for operation in table().filter(|operation| operation.accepts(dtype)) {
            pointwise(operation, dtype)?;
        }
        for other in DType::ALL {
            of(dtype, &[8])?.to_dtype(other)?;
        }
        let matrix = of(dtype, &[6, 8])?;
        for name in reductions().chain(scans()).filter(|row| row.accepts(dtype)).map(|row| row.name) {
            for dims in [&[][..], &[1], &[0]] {
                rows(name, &matrix, dims)?;
            }
        }
        matrix.fill_(1)?;
        if dtype.is_floating_point() && !dtype.is_float8() {
            matrix.softmax(1, None)?;
            matrix.log_softmax(0, None)?;
            matrix.layer_norm(&[8], None, None, 1e-5)?;
            matrix.cross_entropy(&of(DType::I64, &[6])?, &CrossEntropy::default())?;
        }
    }
    Ok(())
}

/// Ones on the device.
fn of(dtype: DType, sizes: &[i64]) -> Result<Tensor> {
    Tensor::ones(sizes, dtype, "cuda")
}

fn pointwise(operation: &'static Operation, dtype: DType) -> Result<()> {
    let own = |at: usize| if operation.takes_condition && at == 0 { DType::Bool } else { dtype };
    let numbers: Vec<Scalar> = (0..operation.numbers).map(|_| Scalar::Int(1)).collect();
    let apply = |tensors: &[Tensor]| {
        let operands: Vec<Operand<'_>> = tensors.iter().map(Operand::from).collect();
        operation.apply(&operands, &numbers).map(drop)
    };
    let whole: Vec<Tensor> = (0..operation.arity).map(|at| of(own(at), &[16])).collect::<Result<_>>()?;
    apply(&whole)?;
    let strided = |at: usize| of(own(at), &[6, 5])?.slice(1, None, None, 2)?.slice(0, None, None, 3);
    let strided: Vec<Tensor> = (0..operation.arity).map(strided).collect::<Result<_>>()?;
    apply(&strided)
}

/// A reduction or a scan by the name of its row. Those of one dimension do without what names none.
fn rows(name: &str, input: &Tensor, dims: &[i64]) -> Result<()> {
    let first = dims.first().copied();
    let along = |run: &dyn Fn(i64) -> Result<()>| first.map_or(Ok(()), run);
    match name {
        "sum" => input.sum(dims, false, None).map(drop),
        "nansum" => input.nansum(dims, false, None).map(drop),
        "mean" => input.mean(dims, false, None).map(drop),
        "prod" => input.prod(dims, false, None).map(drop),
        "count_nonzero" => input.count_nonzero(dims).map(drop),
        "any" => input.any(dims, false).map(drop),
        "all" => input.all(dims, false).map(drop),
        "amax" => input.amax(dims, false).map(drop),
        "amin" => input.amin(dims, false).map(drop),
        "max" => input.max().map(drop),
        "min" => input.min().map(drop),
        "max_dim" => along(&|dim| input.max_dim(dim, false).map(drop)),
        "min_dim" => along(&|dim| input.min_dim(dim, false).map(drop)),
        "argmax" => input.argmax(first, false).map(drop),
        "argmin" => input.argmin(first, false).map(drop),
        "var" => input.var(dims, 1, false).map(drop),
        "std" => input.std(dims, 1, false).map(drop),
        "logsumexp" => input.logsumexp(dims, false).map(drop),
        "norm_0" => input.norm(0, dims, false, None).map(drop),
        "norm_1" => input.norm(1, dims, false, None).map(drop),
        "norm_2" => input.norm(2, dims, false, None).map(drop),
        "norm_p" => input.norm(3.0, dims, false, None).map(drop),
        "norm_inf" => input.norm(f64::INFINITY, dims, false, None).map(drop),
        "norm_minus_inf" => input.norm(f64::NEG_INFINITY, dims, false, None).map(drop),
        "cumsum" => along(&|dim| input.cumsum(dim, None).map(drop)),
        "cumprod" => along(&|dim| input.cumprod(dim, None).map(drop)),
        "cummax" => along(&|dim| input.cummax(dim).map(drop)),
        "cummin" => along(&|dim| input.cummin(dim).map(drop)),
        "logcumsumexp" => along(&|dim| input.logcumsumexp(dim).map(drop)),
        _ => Err(Error::Tensor(TensorError::Invalid(format!("no call is known for the row '{name}'")))),
    }
}
