//! Products of matrices of 8-bit floats with scales (`torch._scaled_mm`).
//!
//! **Invariants:** sums are multiplied by the scales of their row and column in `f32`, where scales differ along the inner
//! dimension the sum of each 128 steps by itself; a bias is added, and the result is rounded once. On a device a result of 8 bits that is too large becomes the largest number, as in torch; on the host it
//! becomes an infinity or a NaN, as in torch there.

use super::bytes::{self, aligned};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::contiguous_strides;
use crate::launch::byte_products::{BLOCK, Problem, Scales, Scaling};
use crate::launch::common_device;
use crate::tensor::{Context, Tensor, empty_strided, is_host, read_complex, resize_output, scalar_bytes};
use c10_core::host_memory;

/// What [`Tensor::scaled_mm`] may be given besides the factors and their scales.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScaledMm<'a> {
    /// A number for each column, which is added: of `bf16`, or of `f16` where the result is `f16` or has 8 bits.
    pub bias: Option<&'a Tensor>,
    /// One `f32`; torch checks it and has no further use for it.
    pub scale_result: Option<&'a Tensor>,
    /// The dtype of the result: a float of 8 bits, `bf16`, `f16` or `f32`. Without one it is that of the first factor.
    pub out_dtype: Option<DType>,
    /// Whether cuBLASLt may add less exactly.
    pub use_fast_accum: bool,
}

impl Tensor {
    /// `self @ mat2 * scale_a * scale_b + bias` for matrices of 8-bit floats, (m, k) by (k, n) (`torch._scaled_mm`).
    ///
    /// The scales are `f32`: one number each, or (m, 1) and (1, n), or one for each 128 elements along k, or one for each
    /// block of 128 by 128 of one factor (the other then has one for each 128 elements). Those of 128 elements are (m, l)
    /// and (l, n) with l = k / 128 rounded up, and those of different lines lie one after another; those of blocks are
    /// (m / 128, l) and (l, n / 128) rounded up, and those along k lie one after another, with lines as long as they are or
    /// rounded up to a multiple of 16 bytes. On a device `self` lies by rows and `mat2` by columns, and `k` and `n` are
    /// multiples of 16. Work is queued on the current stream.
    ///
    /// Blocks of 32 elements, which have scales of 8 bits, take compute capability 10.0 and a dtype that there is not here.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::blas::ScaledMm;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let a = Tensor::full(&[2, 16], 1.5, DType::F8E4M3FN, "cuda")?;
    /// let b = Tensor::full(&[16, 16], 2, DType::F8E5M2, "cuda")?.t()?;
    /// let scale = Tensor::full(&[], 0.5, DType::F32, "cuda")?;
    /// let options = ScaledMm { out_dtype: Some(DType::F32), ..ScaledMm::default() };
    /// assert_eq!(a.scaled_mm(&b, &scale, &scale, &options)?.to_vec::<f32>()?[0], 12.0);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The operands are no such matrices, do not fit each other, or are on several devices; the scales are of another kind;
    /// there is not enough memory, or the device or the library failed.
    #[doc(alias = "_scaled_mm")]
    pub fn scaled_mm(&self, mat2: &Self, scale_a: &Self, scale_b: &Self, options: &ScaledMm<'_>) -> Result<Self> {
        let run = || {
            let product = Scaled::new([self, mat2], [scale_a, scale_b], options)?;
            let dtype = options.out_dtype.unwrap_or(self.dtype());
            product.check(dtype)?;
            let sizes = [self.sizes()[0], mat2.sizes()[1]];
            let out = empty_strided(&sizes, &contiguous_strides(&sizes), dtype, self.device())?;
            product.compute(&out)?;
            Ok(out)
        };
        run().of("_scaled_mm", &[self, mat2])
    }

    /// [`Self::scaled_mm`] into `out` (m, n), whose dtype is that of the result.
    ///
    /// # Errors
    /// As there, or `out` has another dtype than is asked for, other sizes, or another device.
    #[doc(alias = "_scaled_mm_out")]
    pub fn scaled_mm_out(
        &self,
        mat2: &Self,
        scale_a: &Self,
        scale_b: &Self,
        options: &ScaledMm<'_>,
        out: &Self,
    ) -> Result<()> {
        let run = || {
            common_device([out, self])?;
            let product = Scaled::new([self, mat2], [scale_a, scale_b], options)?;
            product.check_sizes()?;
            if options.out_dtype.is_some_and(|dtype| dtype != out.dtype()) {
                return Err(invalid("out_dtype must match output matrix type"));
            }
            product.check(out.dtype())?;
            let sizes = [self.sizes()[0], mat2.sizes()[1]];
            resize_output(out, &[self, mat2, scale_a, scale_b], &sizes, || contiguous_strides(&sizes))?;
            let operands = [Some(self), Some(mat2), Some(scale_a), Some(scale_b), options.bias];
            let shares = operands.into_iter().flatten().any(|operand| operand.storage().is_same(out.storage()));
            if out.is_contiguous() && !shares {
                return product.compute(out);
            }
            let options = ScaledMm { out_dtype: Some(out.dtype()), ..*options };
            out.copy_(&self.scaled_mm(mat2, scale_a, scale_b, &options)?).map(drop)
        };
        run().of("_scaled_mm", &[out, self, mat2])
    }
}

/// A product with all that it is given, on one device.
struct Scaled<'a> {
    a: &'a Tensor,
    b: &'a Tensor,
    scales: [&'a Tensor; 2],
    options: &'a ScaledMm<'a>,
}

impl<'a> Scaled<'a> {
    fn new([a, b]: [&'a Tensor; 2], scales: [&'a Tensor; 2], options: &'a ScaledMm<'a>) -> Result<Self> {
        let beside = [options.bias, options.scale_result].into_iter().flatten();
        common_device([a, b].into_iter().chain(scales).chain(beside))?;
        Ok(Self { a, b, scales, options })
    }

    /// m, n and k.
    fn sizes(&self) -> [i64; 3] {
        [self.a.sizes()[0], self.b.sizes()[1], self.a.sizes()[1]]
    }

    fn is_on_host(&self) -> bool {
        is_host(self.a.device())
    }

    /// Checks in the order in which torch does, for a result of this dtype.
    fn check(&self, out: DType) -> Result<()> {
        self.check_sizes()?;
        let [m, n, k] = self.sizes();
        if !self.is_on_host() {
            if k % 16 != 0 {
                return Err(invalid(format!(
                    "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: ({m}x{k})."
                )));
            }
            if n % 16 != 0 {
                return Err(invalid(format!("mat2 shape ({k}x{n}) must be divisible by 16")));
            }
            if [self.a, self.b].iter().all(|factor| factor.dtype() == DType::F8E5M2) {
                return Err(invalid("Multiplication of two Float8_e5m2 matrices is not supported"));
            }
            self.check_bias(out)?;
        }
        if !out.is_float8() && !matches!(out, DType::F16 | DType::BF16 | DType::F32) {
            return Err(TensorError::NotImplemented { kernel: "_scaled_mm".to_owned(), dtype: out }.into());
        }
        let has_elements = m != 0 && n != 0 && k != 0;
        if has_elements && !self.is_on_host() && !(lies_by_rows(self.a, true) && lies_by_rows(&self.b.t()?, false)) {
            return Err(invalid("Only multiplication of row-major and column-major matrices is supported by cuBLASLt"));
        }
        // Of several sides torch names the one that comes first for cuBLASLt.
        let divided = self.scaling()?.into_iter().rev().find(|kind| kind.is_divided());
        if let Some(kind) = divided.filter(|_| has_elements && self.options.use_fast_accum && !self.is_on_host()) {
            let name = if kind == Scaling::Blocks { "128x128" } else { "1x128" };
            return Err(invalid(format!("scaled_gemm doesn't support fast accum with {name} blockwise scaling")));
        }
        Ok(())
    }

    /// Checks sizes and scales.
    fn check_sizes(&self) -> Result<()> {
        for (name, matrix) in [("mat1", self.a), ("mat2", self.b)] {
            if matrix.dim() != 2 {
                return Err(invalid(format!("{name} must be a matrix")));
            }
        }
        let ([m, n, k], inner) = (self.sizes(), self.b.sizes()[0]);
        if k != inner {
            return Err(invalid(format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {inner}x{n})")));
        }
        if self.is_on_host() {
            for (name, matrix) in [("mat1", self.a), ("mat2", self.b)] {
                if !matrix.dtype().is_float8() {
                    let found = matrix.dtype().scalar_type_name();
                    return Err(invalid(format!("Expected {name} to be Float8 matrix got {found}")));
                }
            }
        }
        self.scaling()?;
        if self.options.scale_result.is_some_and(|scale| scale.numel() != 1 || scale.dtype() != DType::F32) {
            return Err(invalid("scale_result must be a float scalar"));
        }
        match self.options.bias {
            Some(bias) if bias.numel() != n => Err(invalid(format!("Bias must be size {n} but got {}", bias.numel()))),
            _ => Ok(()),
        }
    }

    /// What the scales are for: the first of torch's configurations that they fit.
    fn scaling(&self) -> Result<[Scaling; 2]> {
        use Scaling::{Blocks, Lines, Parts, Whole};
        const CONFIGURATIONS: [[Scaling; 2]; 5] =
            [[Whole, Whole], [Lines, Lines], [Blocks, Parts], [Parts, Blocks], [Parts, Parts]];
        let [m, n, k] = self.sizes();
        let turned = if self.scales[1].dim() == 2 { self.scales[1].t()? } else { self.scales[1].clone() };
        let are_small = self.a.dtype().is_float8() && self.b.dtype().is_float8();
        let fits = |&[a, b]: &[Scaling; 2]| fits(self.scales[0], a, [m, k]) && fits(&turned, b, [n, k]);
        let found = CONFIGURATIONS.into_iter().filter(|_| are_small).find(|kinds| fits(kinds));
        found.ok_or_else(|| invalid(self.configurations()))
    }

    /// torch's text of the scales that there are.
    fn configurations(&self) -> String {
        let [m, n, k] = self.sizes();
        let (along, rows, columns) = (blocks(k, 128), blocks(m, 128), blocks(n, 128));
        let swizzled = |size: i64, parts: i64| blocks(size, 128) * 128 * (blocks(parts, 4) * 4);
        let [m32, n32] = [m, n].map(|size| swizzled(size, blocks(k, 32)));
        let [m16, n16] = [m, n].map(|size| swizzled(size, blocks(2 * k, 16)));
        let floats = "a and b should be float8, scales should be float";
        let got = |name: &str, factor: &Tensor, scale: &Tensor, and: &str| {
            format!(
                "{name}.dtype()={}, scale_{name}.dtype()={}, scale_{name}.size()={:?}{and} scale_{name}.stride()={:?}",
                factor.dtype().scalar_type_name(),
                scale.dtype().scalar_type_name(),
                scale.sizes(),
                scale.strides()
            )
        };
        let [scale_a, scale_b] = self.scales;
        [
            "Invalid scaling configuration.".to_owned(),
            format!("- For TensorWise scaling, {floats} and singletons."),
            format!(
                "- For RowWise scaling, {floats}, scale_a should be ({m}, 1) and scale_b should be (1, {n}), and both should \
                 be contiguous."
            ),
            format!(
                "- For BlockWise 1x128 scaling, {floats}, scale_a should be ({m}, {along}) and scale_b should be ({along}, \
                 {n}), and both should be outer-dim-major."
            ),
            format!(
                "- For BlockWise 128x128 scaling, {floats}, scale_a should be ({rows}, {along}) and scale_b should be \
                 ({along}, {columns}), and both should be near-inner-dim-major (with 16-byte aligned strides)."
            ),
            format!(
                "- For Blockwise 1x32 scaling, a and b should be float8, scales should be float8_e8m0fnu, scale_a should \
                 have {m32} elements and scale_b should have {n32} elements, and both should be contiguous."
            ),
            format!(
                "- For Blockwise 1x16 scaling, a and b should be float4 (packed 2x), scales should be float8_e4m3fn, \
                 scale_a should have {m16} elements and scale_b should have {n16} elements, and both should be contiguous."
            ),
            format!("Got {}, {}", got("a", self.a, scale_a, ","), got("b", self.b, scale_b, " and")),
        ]
        .join("\n")
    }

    fn check_bias(&self, out: DType) -> Result<()> {
        let Some(bias) = self.options.bias else { return Ok(()) };
        let (found, result) = (bias.dtype().scalar_type_name(), out.scalar_type_name());
        match (out, bias.dtype()) {
            (DType::F32, _) => Err(invalid("Bias is not supported when out_dtype is set to Float32")),
            (DType::BF16, DType::F16) => {
                Err(invalid(format!("Bias must be BFloat16 to compute {result} output, but got {found}")))
            }
            (DType::F16, DType::BF16) => {
                Err(invalid(format!("Bias must be Float16 to compute {result} output, but got {found}")))
            }
            (_, DType::F16 | DType::BF16) => Ok(()),
            _ => Err(invalid(format!("Bias must be BFloat16 or Half, but got {found}"))),
        }
    }

    fn compute(&self, out: &Tensor) -> Result<()> {
        let [m, n, k] = self.sizes();
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return out.zero_().map(drop);
        }
        if self.is_on_host() {
            return self.on_host(out);
        }
        let bias = self.options.bias.map(|bias| bias.reshape(&[n])?.packed()).transpose()?;
        let [a, b] = self.scales.map(Tensor::resolved);
        let scales = Scales { a: &a?, b: &b?, kinds: self.scaling()?, bias: bias.as_ref() };
        let (a, b, fast) = (self.a, self.b, self.options.use_fast_accum);
        bytes::compute(&Problem { out, a, b, scales: Some(scales), fast })
    }

    /// Sums in `f64`, the reference of the tests.
    fn on_host(&self, out: &Tensor) -> Result<()> {
        let [m, n, k] = self.sizes().map(|size| usize::try_from(size).unwrap_or(0));
        let numbers = |tensor: &Tensor| -> Result<Vec<f64>> {
            let numbers = read_complex(tensor)?;
            Ok(host_memory::collected(numbers.len(), numbers.into_iter().map(|number| number.re))?)
        };
        let (left, right) = (numbers(self.a)?, numbers(self.b)?);
        let [kind_a, kind_b] = self.scaling()?;
        let rows = OnHost::new(numbers(self.scales[0])?, kind_a, k);
        let turned = if kind_b == Scaling::Whole { self.scales[1].clone() } else { self.scales[1].t()? };
        let columns = OnHost::new(numbers(&turned)?, kind_b, k);
        let bias = self.options.bias.map(numbers).transpose()?;
        let mut written = host_memory::with_capacity(out.nbytes())?;
        for at in 0..m * n {
            let (row, column) = (at / n, at % n);
            let length = if kind_a.is_divided() || kind_b.is_divided() { ON_ONE } else { k };
            let parts = (0..k).step_by(length).map(|first| {
                let part = first..(first + length).min(k);
                let sum: f64 = part.map(|inner| left[row * k + inner] * right[inner * n + column]).sum();
                sum * rows.of(row, first) * columns.of(column, first)
            });
            let scaled: f64 = parts.sum();
            let value = scaled + bias.as_ref().map_or(0.0, |bias| bias[column]);
            written.extend(scalar_bytes(Scalar::Float(value), out.dtype()));
        }
        out.plain_storage()?.write(out.byte_offset(), &written)
    }
}

/// Whether scales, as (lines, parts), are of a kind for a factor of as many lines, `inner` long.
fn fits(scale: &Tensor, kind: Scaling, [lines, inner]: [i64; 2]) -> bool {
    let parts = blocks(inner, BLOCK);
    if scale.dtype() != DType::F32 {
        return false;
    }
    if kind == Scaling::Whole || scale.dim() != 2 {
        return kind == Scaling::Whole && scale.numel() == 1;
    }
    let ([first, second], [over, along]) =
        ([scale.sizes()[0], scale.sizes()[1]], [scale.strides()[0], scale.strides()[1]]);
    match kind {
        Scaling::Whole => false,
        Scaling::Lines => [first, second] == [lines, 1] && scale.is_contiguous(),
        Scaling::Parts => {
            [first, second] == [lines, parts] && (lines <= 1 || over == 1) && (parts <= 1 || along == lines)
        }
        Scaling::Blocks => {
            let count = blocks(lines, BLOCK);
            let is_line = over == parts || over == aligned(parts);
            [first, second] == [count, parts] && (count <= 1 || is_line) && (parts <= 1 || along == 1)
        }
    }
}

/// [`BLOCK`], for places.
const ON_ONE: usize = 128;

/// The scales of a factor on the host.
struct OnHost {
    numbers: Vec<f64>,
    kind: Scaling,
    parts: usize,
}

impl OnHost {
    /// Of scales by lines, for a factor that is `inner` long.
    fn new(numbers: Vec<f64>, kind: Scaling, inner: usize) -> Self {
        Self { numbers, kind, parts: inner.div_ceil(ON_ONE) }
    }

    fn of(&self, line: usize, inner: usize) -> f64 {
        let part = inner / ON_ONE;
        self.numbers[match self.kind {
            Scaling::Whole => 0,
            Scaling::Lines => line,
            Scaling::Parts => line * self.parts + part,
            Scaling::Blocks => line / ON_ONE * self.parts + part,
        }]
    }
}

/// Blocks of so many that a size takes.
fn blocks(size: i64, of: i64) -> i64 {
    (size + of - 1) / of
}

/// Whether rows lie one after another, or (if that may be) neither rows nor columns do, so that a copy is made.
fn lies_by_rows(matrix: &Tensor, may_be_copied: bool) -> bool {
    let ([rows, columns], [row, column]) =
        ([matrix.sizes()[0], matrix.sizes()[1]], [matrix.strides()[0], matrix.strides()[1]]);
    let by_rows = column == 1 && (row >= columns || rows == 1);
    let by_columns = row == 1 && column >= rows;
    by_rows || (may_be_copied && !by_columns)
}
