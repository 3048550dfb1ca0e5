//! One product of matrices of bytes, by whoever computes it best: cuBLASLt, kernels of this crate, or what the tuner found.
//!
//! **Invariant:** the result is contiguous and shares no memory with the factors. cuBLASLt is given factors whose lines lie one
//! after another and scales as it reads them; where they do not lie so, they are copied.

use c10_core::{DeviceIndex, Runtime};

use super::library::bytes;
use super::library::handle::Blas;
use super::library::lt::Algorithm;
use super::tune::{self, Element, Kind};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::launch::byte_products::{self, Problem, Scales, Scaling, Solution};
use crate::tensor::Tensor;

use super::byte_candidates::{ALIGNMENT, ByteWays, lack};

/// Sizes from which on the kernels of this crate beat cuBLASLt at products of integers, on compute capability 9.0: tiles of 256
/// by 256 elements, and steps of the inner dimension.
const ENOUGH_TILES: i64 = 64;
const ENOUGH_STEPS: i64 = 2048;

/// One way to a product.
#[derive(Clone, Debug)]
pub(super) enum ByteWay {
    /// As without the tuner.
    Default,
    Lt(Algorithm),
    Own(Solution),
}

/// Computes a product on a device.
pub(super) fn compute(product: &Problem<'_>) -> Result<()> {
    if tune::may_be_enabled() {
        let device = product.out.device().cuda_index()?.unwrap_or_default();
        if let Some(problem) = problem(product)
            && let Some(way) = tune::choose(&problem, device, || Ok(ByteWays { product: *product }))?
        {
            return by(product, &way);
        }
    }
    by(product, &ByteWay::Default)
}

/// The result by one of the ways to it.
pub(super) fn by(product: &Problem<'_>, way: &ByteWay) -> Result<()> {
    match way {
        ByteWay::Own(solution) => byte_products::run(product, Some(*solution)),
        ByteWay::Lt(algorithm) if by_library(product, Some(algorithm))? => Ok(()),
        ByteWay::Lt(_) => Err(invalid("no library computes this product so")),
        ByteWay::Default if !prefers_own(product)? && by_library(product, None)? => Ok(()),
        ByteWay::Default => byte_products::run(product, None),
    }
}

/// Whether a kernel of this crate is likely to be quicker than cuBLASLt.
fn prefers_own(product: &Problem<'_>) -> Result<bool> {
    let [m, n, k] = product.sizes();
    let tiles = |size: i64| (size + 255) / 256;
    let is_large = k >= ENOUGH_STEPS && tiles(m).saturating_mul(tiles(n)) >= ENOUGH_TILES;
    Ok(product.scales.is_none() && is_large && byte_products::is_for_wgmma(product)?)
}

/// By cuBLASLt; `false` where it is not there or does not compute it.
fn by_library(product: &Problem<'_>, algorithm: Option<&Algorithm>) -> Result<bool> {
    if Runtime::with_current(|runtime| Blas::of(runtime).libraries.lt(runtime).is_err()) {
        return Ok(false);
    }
    with_lines(product, |product| {
        Runtime::with_current(|runtime| {
            let blas = Blas::of(runtime);
            let device = product.out.device().cuda_index()?.unwrap_or_default();
            let Some(handle) = blas.handle(runtime, device)? else { return Ok(false) };
            bytes::run(runtime, &blas, &handle, product, algorithm)
        })
    })
}

/// What cuBLASLt proposes for a product.
pub(super) fn algorithms(product: &Problem<'_>, most: usize) -> Result<Vec<Algorithm>> {
    with_lines(product, |product| {
        Runtime::with_current(|runtime| {
            let blas = Blas::of(runtime);
            let device = product.out.device().cuda_index()?.unwrap_or(DeviceIndex(0));
            let Some(handle) = blas.handle(runtime, device)? else { return Ok(Vec::new()) };
            bytes::algorithms(runtime, &blas, &handle, product, most)
        })
    })
}

/// Hands on the product as cuBLASLt takes it.
fn with_lines<R>(product: &Problem<'_>, f: impl FnOnce(&Problem<'_>) -> Result<R>) -> Result<R> {
    let (a, b) = (by_rows(product.a)?, by_rows(&product.b.t()?)?.t()?);
    let Some(scales) = product.scales else { return f(&Problem { a: &a, b: &b, ..*product }) };
    let [kind_a, kind_b] = scales.kinds;
    let scale_a = for_library(scales.a, kind_a)?;
    let scale_b = match kind_b {
        Scaling::Whole => scales.b.clone(),
        kind => for_library(&scales.b.t()?, kind)?.t()?,
    };
    let scales = Scales { a: &scale_a, b: &scale_b, ..scales };
    f(&Problem { a: &a, b: &b, scales: Some(scales), ..*product })
}

/// The matrix with each row's elements one after another: itself where it lies so.
fn by_rows(matrix: &Tensor) -> Result<Tensor> {
    if lies_by_rows(matrix) { Ok(matrix.clone()) } else { matrix.contiguous() }
}

fn lies_by_rows(matrix: &Tensor) -> bool {
    let (sizes, strides) = (matrix.sizes(), matrix.strides());
    strides[1] == 1 && strides[0] >= sizes[1]
}

/// Scales, by lines, as cuBLASLt reads them: those of blocks have lines of a multiple of 16 bytes.
fn for_library(scale: &Tensor, kind: Scaling) -> Result<Tensor> {
    match kind {
        Scaling::Whole => Ok(scale.clone()),
        Scaling::Lines => scale.contiguous(),
        Scaling::Parts => scale.t()?.contiguous()?.t(),
        Scaling::Blocks => {
            let (count, parts) = (scale.sizes()[0], scale.sizes()[1]);
            if parts == aligned(parts) {
                return scale.contiguous();
            }
            let room = Tensor::zeros(&[count, aligned(parts)], DType::F32, scale.device())?;
            let lines = room.narrow(1, 0, parts)?;
            lines.copy_(scale)?;
            Ok(lines)
        }
    }
}

/// So many `f32` rounded up to a multiple of 16 bytes.
pub(super) fn aligned(count: i64) -> i64 {
    (count + 3) / 4 * 4
}

/// The problem of a product, as the tuner names it: torch's name of scaled products, and one of our own for integers. `None`
/// where a dtype has no name.
pub(super) fn problem(product: &Problem<'_>) -> Option<tune::Problem> {
    let Problem { out, a, b, scales, fast } = *product;
    let element = |tensor: &Tensor| Element::of(tensor.dtype(), false);
    let [m, n, k] = product.sizes().map(i64::unsigned_abs);
    let turned = b.t().ok()?;
    // What does not lie in lines is copied, whoever computes.
    let are_lines = [lies_by_rows(&turned), lies_by_rows(a)];
    let line = |is_line: bool, tensor: &Tensor| if is_line { tensor.strides()[0].unsigned_abs() } else { k };
    let leading = [line(are_lines[0], &turned), line(are_lines[1], a), n];
    let kinds = scales.map(|scales| scales.kinds);
    let code = |kind: Scaling| match kind {
        Scaling::Whole | Scaling::Lines => 0,
        Scaling::Parts => 1,
        Scaling::Blocks => 2,
    };
    let [kind_a, kind_b] = kinds.map_or([0, 0], |kinds| kinds.map(code));
    let copied = are_lines.map(|is_line| u32::from(!is_line));
    let parts = [
        (lack(b, ALIGNMENT), 3),
        (lack(a, ALIGNMENT), 3),
        (lack(out, ALIGNMENT), 3),
        (u32::from(fast), 1),
        (kind_a, 2),
        (kind_b, 2),
        (copied[0], 1),
        (copied[1], 1),
    ];
    let (variant, _) = parts.into_iter().fold((0, 0), |(bits, at), (part, width)| (bits | part << at, at + width));
    Some(tune::Problem {
        kind: if scales.is_some() { Kind::Scaled } else { Kind::Integers },
        elements: if scales.is_some() { [element(b)?, element(a)?, element(out)?] } else { [Element::Int8; 3] },
        transposed: [true, false],
        sizes: [n, m, k],
        batches: 1,
        leading,
        rowwise: kinds == Some([Scaling::Lines, Scaling::Lines]),
        bias: match scales.and_then(|scales| scales.bias) {
            Some(bias) => Some(element(bias)?),
            None => None,
        },
        variant,
    })
}
