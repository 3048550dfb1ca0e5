//! The ways to one product of matrices of bytes that the tuner compares: every algorithm that cuBLASLt proposes, and kernels
//! of this crate.
//!
//! **Invariants:** as for `candidates`. Copies of the factors lie as these do; scales and bias are the caller's own, since they
//! are small.

use c10_core::{Device, DeviceIndex};

use super::bytes::{self, ByteWay};
use super::candidates::{copied, like, over, room};
use super::tune::{Candidates, DEFAULT, Element, Inputs, Problem as Tuned};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::contiguous_strides;
use crate::base::tune_error::TuneError;
use crate::launch::byte_products::{self, Problem, Scales, Scaling};
use crate::random::Generator;
use crate::tensor::{Tensor, empty_strided};

/// How many algorithms cuBLASLt is asked for.
const ALGORITHMS: usize = 64;

/// The largest alignment that decides about a way, in bytes.
pub(super) const ALIGNMENT: u64 = 16;

/// What an address lacks to be a multiple of an alignment, as a power of two.
pub(super) fn lack(tensor: &Tensor, alignment: u64) -> u32 {
    alignment.trailing_zeros() - tensor.data_ptr().trailing_zeros().min(alignment.trailing_zeros())
}

/// A product with the ways to it.
pub(super) struct ByteWays<'a> {
    pub(super) product: Problem<'a>,
}

/// Operands of a run.
pub(super) struct Operands {
    a: Tensor,
    b: Tensor,
    out: Tensor,
}

impl Candidates for ByteWays<'_> {
    type Candidate = ByteWay;
    type Arguments = Operands;

    fn list(&self) -> Result<Vec<(String, ByteWay)>> {
        let mut ways = vec![(DEFAULT.to_owned(), ByteWay::Default)];
        for algorithm in bytes::algorithms(&self.product, ALGORITHMS)? {
            // The library may propose one algorithm twice, with other workspaces.
            if !ways.iter().any(|(name, _)| *name == algorithm.name) {
                ways.push((algorithm.name.clone(), ByteWay::Lt(algorithm)));
            }
        }
        let own = byte_products::solutions(&self.product)?;
        ways.extend(own.into_iter().map(|solution| (solution.name().to_owned(), ByteWay::Own(solution))));
        Ok(ways)
    }

    fn bytes(&self) -> u64 {
        let Problem { a, b, out, .. } = self.product;
        [a, b, out].map(|tensor| u64::try_from(tensor.byte_extent()).unwrap_or(0)).iter().sum()
    }

    fn arguments(&self, inputs: Inputs) -> Result<Operands> {
        let Problem { a, b, out, .. } = self.product;
        let generator = Generator::new(out.device().cuda_index()?.unwrap_or(DeviceIndex(0)))?;
        let made = |tensor: &Tensor| match inputs {
            Inputs::Shared => Ok(tensor.clone()),
            Inputs::Copied => copied(tensor),
            Inputs::Random => random(tensor, &generator),
        };
        let (a, b, made) = (made(a)?, made(b)?, like(out)?);
        if inputs == Inputs::Random {
            // What a way leaves unwritten is found.
            if out.dtype() == DType::I32 {
                made.fill_(i64::from(i32::MIN))?
            } else {
                made.fill_(f64::NAN)?
            };
        }
        Ok(Operands { a, b, out: made })
    }

    fn run(&self, way: &ByteWay, operands: &Operands) -> Result<()> {
        let Operands { a, b, out } = operands;
        bytes::by(&Problem { out, a, b, ..self.product }, way)
    }

    fn result(&self, operands: &Operands) -> Result<Tensor> {
        if operands.out.dtype() == DType::I32 { operands.out.to_dtype(DType::F64) } else { Ok(operands.out.clone()) }
    }
}

/// A tensor that lies as another does, with normal random numbers; integers are such numbers times 32.
fn random(tensor: &Tensor, generator: &Generator) -> Result<Tensor> {
    let (elements, offset) = room(tensor);
    let normal = Tensor::randn(&[elements], DType::F32, tensor.device(), Some(generator))?;
    let normal = if tensor.dtype() == DType::I8 {
        normal.mul(32)?.clamp(Some((-127).into()), Some(127.into()))?
    } else {
        normal
    };
    over(&normal.to_dtype(tensor.dtype())?, tensor, offset)
}

/// Hands on a product of 8-bit floats that a signature names, with random operands of its own on a device and scales of one. They lie
/// as the signature says.
///
/// # Errors
/// There are no such operands, there is not enough memory, or as `tune`.
pub(super) fn with_operands<R>(
    problem: &Tuned,
    device: DeviceIndex,
    tune: impl FnOnce(&Tuned, ByteWays<'_>) -> Result<R>,
) -> Result<R> {
    let refused = |why: &str| TuneError::Offline { op: problem.op(), params: problem.params(), why: why.to_owned() };
    let place = Device::cuda(device);
    let signed = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    let ([n, m, k], [b_line, a_line, _]) = (problem.sizes.map(signed), problem.leading.map(signed));
    let [first, second, result] = problem.elements.map(Element::dtype);
    let fits = k % 16 == 0 && n % 16 == 0 && problem.transposed == [true, false];
    let (Some(b_dtype), Some(a_dtype), Some(out_dtype)) = (first, second, result) else {
        return Err(refused("its elements have no dtype here").into());
    };
    let are_small = a_dtype.is_float8() && b_dtype.is_float8() && [a_dtype, b_dtype] != [DType::F8E5M2; 2];
    if !(fits && are_small && (out_dtype.is_float8() || is_result(out_dtype))) {
        return Err(refused("it is no product of 8-bit floats that there is").into());
    }
    let generator = Generator::new(device)?;
    let lines = |lines: i64, line: i64, dtype: DType| -> Result<Tensor> {
        let like = empty_strided(&[lines, line], &[line, 1], dtype, place)?;
        random(&like, &generator)?.narrow(1, 0, k)
    };
    let (a, b) = (lines(m, a_line, a_dtype)?, lines(n, b_line, b_dtype)?.t()?);
    let out = empty_strided(&[m, n], &contiguous_strides(&[m, n]), out_dtype, place)?;
    let kind = if problem.rowwise { Scaling::Lines } else { Scaling::Whole };
    let ones = |sizes: [i64; 2]| Tensor::ones(if problem.rowwise { &sizes } else { &[] }, DType::F32, place);
    let (scale_a, scale_b) = (ones([m, 1])?, ones([1, n])?);
    let bias = match problem.bias.map(Element::dtype) {
        None => None,
        Some(Some(dtype)) => Some(Tensor::randn(&[n], dtype, place, Some(&generator))?),
        Some(None) => return Err(refused("its bias has no dtype here").into()),
    };
    let scales = Scales { a: &scale_a, b: &scale_b, kinds: [kind; 2], bias: bias.as_ref() };
    let product = Problem { out: &out, a: &a, b: &b, scales: Some(scales), fast: false };
    match bytes::problem(&product).filter(|made| made.op() == problem.op() && made.params() == problem.params()) {
        Some(made) => tune(&made, ByteWays { product }),
        None => Err(refused("Offline tuning is not supported for this GEMM. Use online tuning instead.").into()),
    }
}

fn is_result(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32)
}
