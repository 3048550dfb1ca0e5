//! The ways to one product that the tuner compares: cuBLAS, every algorithm that cuBLASLt proposes, and kernels of this
//! crate.
//!
//! **Invariants:** a candidate's name means the same way in every process with the same libraries. Copies of operands lie
//! as the operands do, to the alignment of their first element, so that a way that computes one computes the other.

use c10_core::{Device, DeviceIndex, Runtime};

use super::library::gemm::{Gemm, Outline};
use super::library::handle::Blas;
use super::library::lt::{self, Algorithm};
use super::operand::{Reading, Transpose};
use super::product::{Product, is_same_view};
use super::settings;
use super::tune::{Candidates, DEFAULT, Element, Inputs, Kind, Problem};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::{Dims, contiguous_strides};
use crate::base::tune_error::TuneError;
use crate::launch::own_products::Solution;
use crate::random::Generator;
use crate::tensor::{Tensor, empty_strided};

/// How many algorithms cuBLASLt is asked for.
const ALGORITHMS: usize = 64;

/// The name of cuBLAS.
const CUBLAS: &str = "Cublas";

/// The largest alignment that decides about a way, in bytes: what a thread loads at once.
const ALIGNMENT: u64 = 16;

/// One way to a product.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// As without the tuner.
    Default,
    Cublas,
    Lt(Algorithm),
    Own(Solution),
}

/// A product with its result and the ways to it.
pub(super) struct Ways<'a> {
    pub(super) product: Product<'a>,
    pub(super) out: &'a Tensor,
}

/// Operands of a run. What is added may be the result itself.
pub(super) struct Operands {
    a: Tensor,
    b: Tensor,
    c: Option<Tensor>,
    bias: Option<Tensor>,
    out: Tensor,
}

impl Candidates for Ways<'_> {
    type Candidate = Way;
    type Arguments = Operands;

    fn list(&self) -> Result<Vec<(String, Way)>> {
        let mut ways = vec![(DEFAULT.to_owned(), Way::Default)];
        if self.has_cublas()? {
            ways.push((CUBLAS.to_owned(), Way::Cublas));
        }
        for algorithm in self.algorithms()? {
            // The library may propose one algorithm twice, with other workspaces.
            if !ways.iter().any(|(name, _)| *name == algorithm.name) {
                ways.push((algorithm.name.clone(), Way::Lt(algorithm)));
            }
        }
        let own = self.product.own_solutions(self.out)?;
        ways.extend(own.into_iter().map(|solution| (solution.name().to_owned(), Way::Own(solution))));
        Ok(ways)
    }

    fn bytes(&self) -> u64 {
        let Product { a, b, .. } = self.product;
        [a, b, self.out].map(|tensor| u64::try_from(tensor.byte_extent()).unwrap_or(0)).iter().sum()
    }

    fn arguments(&self, inputs: Inputs) -> Result<Operands> {
        let Product { a, b, c, bias, .. } = self.product;
        let generator = Generator::new(self.out.device().cuda_index()?.unwrap_or(DeviceIndex(0)))?;
        let made = |tensor: &Tensor| match inputs {
            Inputs::Shared => Ok(tensor.clone()),
            Inputs::Copied => copied(tensor),
            Inputs::Random => random(tensor, &generator),
        };
        let (a, b, bias) = (made(a)?, made(b)?, bias.map(made).transpose()?);
        let in_place = c.is_some_and(|c| is_same_view(c, self.out));
        let out = match inputs {
            Inputs::Random if in_place => random(self.out, &generator)?,
            Inputs::Shared | Inputs::Copied if in_place => copied(self.out)?,
            // What a way leaves unwritten is found.
            Inputs::Random => unwritten(self.out)?,
            Inputs::Shared | Inputs::Copied => like(self.out)?,
        };
        let c = if in_place { Some(out.clone()) } else { c.map(made).transpose()? };
        Ok(Operands { a, b, c, bias, out })
    }

    fn run(&self, way: &Way, operands: &Operands) -> Result<()> {
        let Operands { a, b, c, bias, out } = operands;
        let product = Product { a, b, c: c.as_ref(), bias: bias.as_ref(), ..self.product };
        product.by(way, out)
    }

    fn result(&self, operands: &Operands) -> Result<Tensor> {
        Ok(operands.out.clone())
    }
}

impl Ways<'_> {
    fn has_cublas(&self) -> Result<bool> {
        let device = self.out.device().cuda_index()?.unwrap_or(DeviceIndex(0));
        Runtime::with_current(|runtime| Ok(Blas::of(runtime).handle(runtime, device)?.is_some()))
    }

    /// What cuBLASLt proposes.
    fn algorithms(&self) -> Result<Vec<Algorithm>> {
        if self.out.dtype().is_complex() {
            return Ok(Vec::new());
        }
        let Product { a, b, alpha, beta, .. } = self.product;
        Runtime::with_current(|runtime| {
            let blas = Blas::of(runtime);
            let device = self.out.device().cuda_index()?.unwrap_or(DeviceIndex(0));
            let Some(handle) = blas.handle(runtime, device)? else { return Ok(Vec::new()) };
            let Some(gemm) = Gemm::new(self.out, a, b, alpha, beta)? else { return Ok(Vec::new()) };
            lt::algorithms(runtime, &blas, &handle, &gemm, self.product.epilogue(), ALGORITHMS)
        })
    }
}

/// Memory that lies as a tensor's does, as elements in a row, and the place of the first one in it.
pub(super) fn room(tensor: &Tensor) -> (i64, i64) {
    let size = tensor.element_size();
    let elements = tensor.byte_extent() / size.max(1);
    let misplaced = usize::try_from(tensor.data_ptr() % ALIGNMENT).unwrap_or(0) / size.max(1);
    let signed = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    (signed(elements + misplaced), signed(misplaced))
}

/// A tensor over other memory that lies as `tensor` does.
pub(super) fn over(memory: &Tensor, tensor: &Tensor, offset: i64) -> Result<Tensor> {
    let (storage, dtype) = (memory.storage().clone(), tensor.dtype());
    Ok(Tensor::from_storage(storage, dtype, tensor.sizes(), tensor.strides(), offset)?.with_signs(tensor.signs()))
}

/// A tensor that lies as another does, with nothing in it.
pub(super) fn like(tensor: &Tensor) -> Result<Tensor> {
    let (elements, offset) = room(tensor);
    over(&Tensor::uninitialized(&[elements], tensor.dtype(), tensor.device())?, tensor, offset)
}

/// As [`like`], with what is not a number in it.
fn unwritten(tensor: &Tensor) -> Result<Tensor> {
    let made = like(tensor)?;
    made.fill_(f64::NAN)?;
    Ok(made)
}

/// As [`like`], with the same elements, also between those of the tensor.
pub(super) fn copied(tensor: &Tensor) -> Result<Tensor> {
    let made = like(tensor)?;
    let elements = i64::try_from(tensor.byte_extent() / tensor.element_size().max(1)).unwrap_or(0);
    let row =
        |of: &Tensor| Tensor::from_storage(of.storage().clone(), of.dtype(), &[elements], &[1], of.storage_offset());
    row(&made)?.copy_(&row(tensor)?)?;
    Ok(made)
}

/// As [`like`], with normal random numbers.
fn random(tensor: &Tensor, generator: &Generator) -> Result<Tensor> {
    let (elements, offset) = room(tensor);
    over(&Tensor::randn(&[elements], tensor.dtype(), tensor.device(), Some(generator))?, tensor, offset)
}

/// The problem of a product, as the tuner names it; `None` where torch has no name for it.
#[inline]
pub(super) fn problem(product: &Product<'_>, out: &Tensor) -> Option<Problem> {
    let outline = Outline::of(out, product.a, product.b)?;
    let element = Element::of(out.dtype(), out.dtype() == DType::F32 && settings::uses_tf32())?;
    let unsigned = |number: std::ffi::c_int| u64::from(number.unsigned_abs());
    let kind = match (product.bias.is_some(), outline.batches) {
        (_, count) if count != 1 => Kind::StridedBatched,
        (true, _) => Kind::AndBias,
        (false, _) => Kind::Gemm,
    };
    Some(Problem {
        kind,
        elements: [element; 3],
        transposed: [outline.a, outline.b].map(|reading| reading.transpose != Transpose::No),
        sizes: [outline.m, outline.n, outline.k].map(unsigned),
        batches: unsigned(outline.batches),
        leading: [outline.lda, outline.ldb, outline.ldc].map(unsigned),
        rowwise: false,
        bias: None,
        variant: variant(product, out, &outline),
    })
}

/// What decides about ways beside the signature; each part is 0 for the usual case.
fn variant(product: &Product<'_>, out: &Tensor, outline: &Outline) -> u32 {
    let lack = |tensor: &Tensor| ALIGNMENT.trailing_zeros() - (tensor.data_ptr() | ALIGNMENT).trailing_zeros();
    // A copy has memory of its own.
    let lack_of = |tensor: &Tensor, reading: &Reading| if reading.is_copied { 0 } else { lack(tensor) };
    let reduction = match out.dtype() {
        DType::F16 => Some(settings::fp16_reduction()),
        DType::BF16 => Some(settings::bf16_reduction()),
        _ => None,
    };
    // Distances between matrices that are not those of whole ones: 1, and 2 where all are the same one.
    let distance = |stride: i64, rows: std::ffi::c_int, columns: std::ffi::c_int| match stride {
        _ if outline.batches == 1 => 0,
        0 => 2,
        stride => u32::from(stride != i64::from(rows) * i64::from(columns)),
    };
    let Outline { m, n, k, a, b, .. } = outline;
    let parts = [
        (lack_of(product.b, a), 3),
        (lack_of(product.a, b), 3),
        (lack(out), 3),
        (u32::from(product.c.is_some()), 1),
        (product.activation.code(), 2),
        (u32::from(product.bias.is_some() && outline.batches != 1), 1),
        (u32::from(reduction.is_some_and(|reduction| !reduction.is_reduced)), 1),
        (u32::from(reduction.is_some_and(|reduction| !reduction.may_split)), 1),
        (u32::from(out.dtype() == DType::F16 && settings::allow_fp16_accumulation()), 1),
        (distance(a.batch_stride, *m, *k), 2),
        (distance(b.batch_stride, *k, *n), 2),
        (u32::from(a.transpose == Transpose::Conjugated), 1),
        (u32::from(b.transpose == Transpose::Conjugated), 1),
    ];
    let (bits, _) = parts.into_iter().fold((0, 0), |(bits, at), (part, width)| (bits | part << at, at + width));
    bits
}

/// Hands on a product that a signature names, with random operands of its own on a device. They lie as the signature says.
///
/// # Errors
/// There are no such operands, there is not enough memory, or as `tune`.
pub(super) fn with_operands<R>(
    problem: &Problem,
    device: DeviceIndex,
    tune: impl FnOnce(&Problem, Ways<'_>) -> Result<R>,
) -> Result<R> {
    let refused = |why: &str| TuneError::Offline { op: problem.op(), params: problem.params(), why: why.to_owned() };
    check(problem).map_err(refused)?;
    let (first, second, bias) = operands(problem, device)?;
    let mut sizes: Dims = first.sizes().into();
    if let (Some(last), Some(&columns)) = (sizes.last_mut(), second.sizes().last()) {
        *last = columns;
    }
    let out = empty_strided(&sizes, &contiguous_strides(&sizes), first.dtype(), first.device())?;
    let product = Product { bias: bias.as_ref(), ..Product::new(&first, &second) };
    settings::with_tf32(problem.elements[0] == Element::Tf32, || {
        let made = self::problem(&product, &out);
        // Of matrices with one row or column there are several signatures, of which a call has one.
        match made.filter(|made| made.op() == problem.op() && made.params() == problem.params()) {
            Some(made) => tune(&made, Ways { product, out: &out }),
            None => Err(refused("Offline tuning is not supported for this GEMM. Use online tuning instead.").into()),
        }
    })
}

/// Whether there are operands for a problem.
fn check(problem: &Problem) -> std::result::Result<(), &'static str> {
    let [m, n, k] = problem.sizes;
    let [a, b] = problem.transposed;
    let lines = [if a { k } else { m }, if b { n } else { k }, m];
    if [m, n, k, problem.batches].contains(&0) {
        return Err("it has no elements");
    }
    if problem.leading.iter().zip(lines).any(|(leading, line)| *leading < line) {
        return Err("a leading dimension is shorter than its lines");
    }
    if problem.elements[0].dtype().is_none() {
        return Err("its elements have no dtype here");
    }
    Ok(())
}

/// The factors and the bias of a problem: torch's first factor is the second one by columns.
fn operands(problem: &Problem, device: DeviceIndex) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let dtype = problem.elements[0].dtype().unwrap_or(DType::F32);
    let generator = Generator::new(device)?;
    let signed = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    let ([m, n, k], [lda, ldb, _]) = (problem.sizes.map(signed), problem.leading.map(signed));
    let (batches, place) = (signed(problem.batches), Device::cuda(device));
    let factor = |rows: i64, columns: i64, leading: i64, is_turned: bool| {
        let (lines, length) = if is_turned { (columns, rows) } else { (rows, columns) };
        let made = Tensor::randn(&[batches, lines, leading], dtype, place, Some(&generator))?.narrow(2, 0, length)?;
        let made = if is_turned { made.transpose(1, 2)? } else { made };
        if problem.kind == Kind::StridedBatched { Ok(made) } else { made.select(0, 0) }
    };
    let [a, b] = problem.transposed;
    let (first, second) = (factor(n, k, ldb, b)?, factor(k, m, lda, a)?);
    let bias = (problem.kind == Kind::AndBias).then(|| Tensor::randn(&[m], dtype, place, Some(&generator)));
    Ok((first, second, bias.transpose()?))
}
