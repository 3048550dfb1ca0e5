//! Tensors whose elements follow from their places, and parts of matrices.

use c10_core::Device;
use kernel_ir::{Binary, Compare, Graph, GraphError, Kind, Type, Unary, Value};
use num_complex::Complex64;
use smallvec::SmallVec;

use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid, refuse_float8};
use crate::base::scalar::Scalar;
use crate::launch::{self, ProgramKey, Work};
use crate::ops::copy::preserved_strides;
use crate::ops::pointwise::scalar_bits;
use crate::tensor::{Tensor, ToDevice, empty_strided, is_host};

impl Tensor {
    /// Numbers from `start` up to `end`, which is left out, by `step` (`torch.arange`). Without a dtype they are `i64`
    /// if all three are integers, else `f32`.
    ///
    /// ```
    /// use aten_cuda::Tensor;
    ///
    /// assert_eq!(Tensor::arange(0, 7, 3, None, "cpu")?.to_vec::<i64>()?, [0, 3, 6]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The step is zero, in the dtype too, or leads away from the end; a number is not finite; the dtype is complex or a
    /// boolean; there is not enough memory.
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: Option<DType>,
        device: impl ToDevice,
    ) -> Result<Self> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let whole = [start, end, step].iter().all(|number| number.default_dtype().category() <= Category::Integral);
        let dtype = dtype.unwrap_or(if whole { DType::I64 } else { DType::F32 });
        check_numeric(dtype, "arange_cuda")?;
        let place = device.to_device()?;
        let counted = counted(dtype, is_host(place));
        let finite = |number: &&Scalar| number.to_f64().is_finite();
        [start, end, step].iter().filter(finite).try_for_each(|number| number.check_fits(counted))?;
        let out = Self::uninitialized(&[arange_length(start, end, step, dtype)?], dtype, place)?;
        let ty = accumulated(dtype);
        let numbers = [start, step].map(|number| scalar_bits(number, ty, 1)[0]);
        fill_by_index("arange", dtype as u64, &out, &numbers, |graph| {
            let (start, step) = (graph.scalar(ty), graph.scalar(ty));
            let index = graph.index();
            let index = graph.convert(index, ty);
            let value = graph.fma(step, index, start);
            Ok(vec![graph.convert(value, dtype.part())])
        })?;
        Ok(out)
    }

    /// `steps` numbers from `start` to `end`, both of which are there, in equal steps (`torch.linspace`). The second half
    /// is counted back from the end. Without a dtype they are `f32`, or `c64` if one of the two is complex.
    ///
    /// # Errors
    /// The number of steps is negative, the dtype is real where an end is complex, more than one number of `c32` or of
    /// booleans is asked for, or there is not enough memory.
    pub fn linspace(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        steps: i64,
        dtype: Option<DType>,
        device: impl ToDevice,
    ) -> Result<Self> {
        let (start, end) = (start.into(), end.into());
        let dtype = linspace_dtype(start, end, dtype)?;
        if steps < 0 {
            return Err(invalid("number of steps must be non-negative"));
        }
        let out = Self::uninitialized(&[steps], dtype, device)?;
        if steps <= 1 {
            if steps == 1 {
                out.fill_(start)?;
            }
            return Ok(out);
        }
        if matches!(dtype, DType::Bool | DType::C32) || dtype.is_float8() {
            return Err(TensorError::NotImplemented { kernel: "linspace_cuda".to_owned(), dtype }.into());
        }
        start.check_fits(dtype)?;
        end.check_fits(dtype)?;
        let ty = if dtype.is_integral() { Type::F32 } else { dtype.compute_type() };
        let (start, end) = (in_dtype(start, dtype), in_dtype(end, dtype));
        let step = match dtype {
            DType::C64 | DType::C128 => complex_step(start, end, steps, dtype, out.device()),
            _ => step_of(start, end, steps, dtype),
        };
        let mut numbers: SmallVec<[u64; 8]> =
            [start, end, step].into_iter().flat_map(|number| scalar_bits(number, ty, dtype.parts())).collect();
        numbers.extend([steps / 2, steps - 1].map(i64::cast_unsigned));
        fill_by_index("linspace", dtype as u64, &out, &numbers, |graph| Ok(linspace(graph, ty, dtype)))?;
        Ok(out)
    }

    /// A matrix of `rows` times `columns` with ones on its diagonal and zeros elsewhere (`torch.eye`).
    ///
    /// # Errors
    /// A size is negative, or there is not enough memory.
    pub fn eye(rows: i64, columns: i64, dtype: DType, device: impl ToDevice) -> Result<Self> {
        for (name, size) in [("n", rows), ("m", columns)] {
            if size < 0 {
                return Err(invalid(format!("{name} must be greater or equal to 0, got {size}")));
            }
        }
        let out = Self::zeros(&[rows, columns], dtype, device)?;
        out.diagonal(0, 0, 1)?.fill_(1)?;
        Ok(out)
    }

    /// Elements of one value with this tensor's sizes, dtype, device and layout (`torch.full_like`).
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Self> {
        let made = self.uninitialized_like()?;
        made.fill_(value)?;
        Ok(made)
    }

    /// Zeros with this tensor's sizes, dtype, device and layout (`torch.zeros_like`).
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(0)
    }

    /// Ones with this tensor's sizes, dtype, device and layout (`torch.ones_like`).
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn ones_like(&self) -> Result<Self> {
        self.full_like(1)
    }

    /// Elements that are not set, with this tensor's sizes, dtype, device and layout (`torch.empty_like`), filled as
    /// [`Self::empty`] is while deterministic algorithms are used.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn empty_like(&self) -> Result<Self> {
        self.uninitialized_like()?.with_values()
    }

    /// As [`Self::empty_like`], for an operation that writes all elements.
    pub(crate) fn uninitialized_like(&self) -> Result<Self> {
        empty_strided(self.sizes(), &preserved_strides(self), self.dtype(), self.device())
    }

    /// The matrices in the last two dimensions with zeros above a diagonal, which is the main one for 0 and above it for
    /// positive numbers (`tril`).
    ///
    /// # Errors
    /// There are fewer than two dimensions, or there is not enough memory.
    pub fn tril(&self, diagonal: i64) -> Result<Self> {
        self.triangle("tril", diagonal, Compare::Le)
    }

    /// The matrices in the last two dimensions with zeros below a diagonal (`triu`).
    ///
    /// # Errors
    /// As for [`Self::tril`].
    pub fn triu(&self, diagonal: i64) -> Result<Self> {
        self.triangle("triu", diagonal, Compare::Ge)
    }

    fn triangle(&self, name: &'static str, diagonal: i64, keeps: Compare) -> Result<Self> {
        let &[.., rows, columns] = self.sizes() else {
            return Err(invalid(format!("{name}: input tensor must have at least 2 dimensions")));
        };
        refuse_float8("triu_tril_cuda_template", self.dtype())?;
        let out = Self::uninitialized(self.sizes(), self.dtype(), self)?;
        let (ty, parts) = (self.dtype().part(), self.dtype().parts());
        let key = ProgramKey::new(name, self.dtype() as u64);
        let program = launch::program(key, || {
            let mut graph = Graph::new();
            let elements: Vec<Value> = (0..parts).map(|_| graph.input(ty)).collect();
            let [rows, columns, diagonal] = [(); 3].map(|()| graph.scalar(Type::I64));
            let index = graph.index();
            let column = graph.binary(Binary::Rem, index, columns);
            let above = graph.binary(Binary::Div, index, columns);
            let row = graph.binary(Binary::Rem, above, rows);
            let distance = graph.binary(Binary::Sub, column, row);
            let kept = graph.compare(keeps, distance, diagonal);
            for element in elements {
                let zero = zero(&mut graph, ty);
                let value = graph.select(kept, element, zero);
                graph.output(value);
            }
            graph.finish()
        })?;
        // A diagonal outside every matrix is the same as one just outside.
        let diagonal = diagonal.clamp(-rows - 1, columns + 1);
        let scalars = [rows, columns, diagonal].map(i64::cast_unsigned);
        launch::run(&Work { key, program, outputs: &[&out], inputs: &[self], scalars: &scalars }, self.sizes())?;
        Ok(out)
    }
}

fn zero(graph: &mut Graph, ty: Type) -> Value {
    match ty.kind() {
        Kind::Short => {
            let zero = graph.number(Type::F32, 0);
            graph.convert(zero, ty)
        }
        _ => graph.number(ty, 0),
    }
}

/// Sets every element to what a program makes of its index.
fn fill_by_index(
    name: &'static str,
    variant: u64,
    out: &Tensor,
    scalars: &[u64],
    build: impl FnOnce(&mut Graph) -> std::result::Result<Vec<Value>, GraphError>,
) -> Result<()> {
    let key = ProgramKey::new(name, variant);
    let program = launch::program(key, || {
        let mut graph = Graph::new();
        let parts = build(&mut graph)?;
        parts.into_iter().for_each(|part| graph.output(part));
        graph.finish()
    })?;
    launch::run(&Work { key, program, outputs: &[out], inputs: &[], scalars }, out.sizes())
}

fn check_numeric(dtype: DType, kernel: &str) -> Result<()> {
    refuse_float8(kernel, dtype)?;
    match dtype.category() {
        Category::Integral | Category::Floating => Ok(()),
        _ => Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into()),
    }
}

/// Returns the dtype that must be able to represent the arguments of `arange`: torch's accumulation dtype.
fn counted(dtype: DType, on_host: bool) -> DType {
    match dtype {
        whole if whole.is_integral() => DType::I64,
        DType::F32 if on_host => DType::F64,
        other => other.computed(),
    }
}

/// The type in which `arange` counts.
fn accumulated(dtype: DType) -> Type {
    if dtype.is_integral() { Type::I64 } else { dtype.compute_type() }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a length that does not fit is refused"
)]
fn arange_length(start: Scalar, end: Scalar, step: Scalar, dtype: DType) -> Result<i64> {
    let (first, last, by) = (start.to_f64(), end.to_f64(), step.to_f64());
    if by == 0.0 || (dtype.is_integral() && step.to_i64() == 0) {
        return Err(invalid("step must be nonzero"));
    }
    if !first.is_finite() || !last.is_finite() {
        return Err(invalid(format!("unsupported range: {first} -> {last}")));
    }
    if !((by > 0.0 && last >= first) || (by < 0.0 && last <= first)) {
        return Err(invalid("upper bound and lower bound inconsistent with step sign"));
    }
    let length = if dtype == DType::I64 {
        let (first, last, by) = (start.to_i64(), end.to_i64(), step.to_i64());
        let distance = i128::from(last) - i128::from(first);
        ((distance + i128::from(by) - i128::from(by.signum())) / i128::from(by)) as f64
    } else {
        ((last - first) / by).ceil()
    };
    if !(0.0..9e18).contains(&length) {
        return Err(invalid(format!("invalid size, possible overflow? {length} elements")));
    }
    Ok(length as i64)
}

/// A number as an element of the dtype is.
fn in_dtype(number: Scalar, dtype: DType) -> Scalar {
    let bytes = crate::tensor::scalar_bytes(number, dtype);
    crate::tensor::scalar_of(&bytes, dtype)
}

/// The distance of two neighbours, computed as torch does in the dtype; for integers in `f32`.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded as torch rounds")]
fn step_of(start: Scalar, end: Scalar, steps: i64, dtype: DType) -> Scalar {
    let (start, end, count) = (start.to_f64(), end.to_f64(), steps - 1);
    match dtype {
        DType::F64 => ((end - start) / count as f64).into(),
        DType::F16 | DType::BF16 => {
            let rounded = |value: f32| in_dtype(value.into(), dtype).to_f64() as f32;
            rounded(rounded(end as f32 - start as f32) / rounded(count as f32)).into()
        }
        _ => ((end as f32 - start as f32) / count as f32).into(),
    }
}

/// The dtype of what `linspace` makes: of complex numbers it is complex.
fn linspace_dtype(start: Scalar, end: Scalar, asked: Option<DType>) -> Result<DType> {
    let is_complex = [start, end].iter().any(|number| matches!(number, Scalar::Complex(_)));
    match asked {
        Some(real) if is_complex && !real.is_complex() => Err(invalid(format!(
            "torch.linspace(): inferred dtype c10::complex<float> can't be safely cast to passed dtype {}",
            real.scalar_type_name()
        ))),
        Some(asked) => Ok(asked),
        None => Ok(if is_complex { DType::C64 } else { DType::F32 }),
    }
}

/// As [`step_of`], of complex numbers. On the host torch divides each part. For a device it divides by the complex number
/// whose real part is the count, as complex numbers are divided: by a product with the reciprocal.
#[expect(clippy::cast_precision_loss, reason = "rounded as torch rounds")]
fn complex_step(start: Scalar, end: Scalar, steps: i64, dtype: DType, device: Device) -> Scalar {
    // What `f64` makes of two numbers of `f32` is after rounding what `f32` makes of them.
    let rounded = |number: f64| in_dtype(number.into(), dtype.to_real()).to_f64();
    let (real, imaginary) = (rounded(end.to_f64() - start.to_f64()), rounded(end.imaginary() - start.imaginary()));
    let count = rounded((steps - 1) as f64);
    if is_host(device) {
        return Complex64::new(rounded(real / count), rounded(imaginary / count)).into();
    }
    let scale = rounded(count.recip());
    // An infinite part makes the other one a NaN.
    Complex64::new(rounded((real + imaginary * 0.0) * scale), rounded((imaginary - real * 0.0) * scale)).into()
}

/// The program of `linspace`: start, end, step, the first place of the second half, the last place. Each part of a complex
/// number is computed by itself.
fn linspace(graph: &mut Graph, ty: Type, dtype: DType) -> Vec<Value> {
    let [start, end, step] = [(); 3].map(|()| (0..dtype.parts()).map(|_| graph.scalar(ty)).collect::<Vec<_>>());
    let [half, last] = [(); 2].map(|()| graph.scalar(Type::I64));
    let index = graph.index();
    let before = graph.compare(Compare::Lt, index, half);
    let rest = graph.binary(Binary::Sub, last, index);
    let count = graph.select(before, index, rest);
    let count = graph.convert(count, ty);
    let part = |part: usize| {
        let back = graph.unary(Unary::Neg, step[part]);
        let (from, by) = (graph.select(before, start[part], end[part]), graph.select(before, step[part], back));
        let value = if matches!(dtype, DType::F16 | DType::BF16) {
            // Half types round after each operation.
            let count = rounded(graph, count, dtype);
            let product = graph.binary(Binary::Mul, by, count);
            let product = rounded(graph, product, dtype);
            graph.binary(Binary::Add, from, product)
        } else {
            graph.fma(by, count, from)
        };
        graph.convert(value, dtype.part())
    };
    (0..dtype.parts()).map(part).collect()
}

fn rounded(graph: &mut Graph, value: Value, dtype: DType) -> Value {
    let short = graph.convert(value, dtype.part());
    graph.convert(short, Type::F32)
}
