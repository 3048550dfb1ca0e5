//! Writing and adding elements at places that another tensor tells.

use half::{bf16, f16};

use super::{along_dim, check_integers, checked, spread, values, with_dimension};
use crate::autocast::{self, Policies};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Error, IndexKernel, Result, TensorError, invalid, refuse_float8};
use crate::base::scalar::Scalar;
use crate::base::shape::{contiguous_strides, wrap_dim};
use crate::launch::library::index::{Action, Along};
use crate::ops::copy::convert;
use crate::report::Reporter;
use crate::tensor::{Context, Operand, Tensor, check_apart, check_overlap, is_host, may_share};

impl Tensor {
    /// A copy with the elements of `source` written where `index` names their places along `dim` (`scatter`). Which of
    /// several elements for one place is kept, nobody knows on a device; it is the last one while [deterministic
    /// algorithms](crate::deterministic) are used.
    ///
    /// # Errors
    /// The sizes or dtypes do not fit, or an index is negative or too large.
    pub fn scatter<'a>(&self, dim: i64, index: &Self, source: impl Into<Operand<'a>>) -> Result<Self> {
        let made = self.contiguous_copy()?;
        made.scatter_(dim, index, source)?;
        Ok(made)
    }

    /// [`Self::scatter`] in place (`scatter_`).
    ///
    /// # Errors
    /// As for [`Self::scatter`], or several elements of the tensor lie at one place.
    pub fn scatter_<'a>(&self, dim: i64, index: &Self, source: impl Into<Operand<'a>>) -> Result<&Self> {
        let source = source.into();
        if matches!(source, Operand::Number(_)) {
            refuse_float8("cuda_scatter_fill_base_kernel_func", self.dtype())?;
        }
        self.scatter_for(dim, index, source, Action::Scatter, Reporter::Scatter)
    }

    /// A copy with the elements of `source` added where `index` names their places along `dim` (`scatter_add`). Floats
    /// are added in no particular order on a device, in that of the index while [deterministic
    /// algorithms](crate::deterministic) are used.
    ///
    /// # Errors
    /// As for [`Self::scatter`].
    pub fn scatter_add(&self, dim: i64, index: &Self, source: &Self) -> Result<Self> {
        let policies = const { Policies::of("scatter_add") };
        if let Some((_inside, [own, source])) = autocast::cast(policies, [self, source])? {
            return own.scatter_add(dim, index, &source);
        }
        let made = self.contiguous_copy()?;
        made.scatter_add_(dim, index, source)?;
        Ok(made)
    }

    /// [`Self::scatter_add`] in place (`scatter_add_`).
    ///
    /// # Errors
    /// As for [`Self::scatter_`].
    pub fn scatter_add_(&self, dim: i64, index: &Self, source: &Self) -> Result<&Self> {
        refuse_float8("cuda_scatter_gather_base_kernel_func", self.dtype())?;
        self.scatter_for(dim, index, source.into(), Action::Add, Reporter::ScatterAdd)
    }

    /// Checks the arguments in torch's order and scatters.
    fn scatter_for(
        &self,
        dim: i64,
        index: &Self,
        source: Operand<'_>,
        action: Action,
        operation: Reporter,
    ) -> Result<&Self> {
        let run = || {
            let at = wrap_dim(dim, self.dim())?;
            if index.numel() > 0 {
                check_integers(index, "scatter(): Expected dtype int32/int64 for index")?;
            }
            if let Operand::Tensor(source) = &source
                && self.dtype() != source.dtype()
            {
                return Err(invalid("scatter(): Expected self.dtype to be equal to src.dtype"));
            }
            if index.numel() == 0 {
                check_overlap(self, &[])?;
                return Ok(self);
            }
            let (target, indices) = (with_dimension(self)?, with_dimension(index)?);
            self.check_sizes_of_scatter(index, &source, at)?;
            check_overlap(&target, &[])?;
            let given = match &source {
                Operand::Tensor(source) => {
                    check_apart(self, source)?;
                    let given = with_dimension(source)?;
                    given.as_strided(indices.sizes(), given.strides(), None)?.apart_from(self)?
                }
                Operand::Number(value) => target.filled_for_scatter(*value, &indices, at, operation)?,
            };
            let indices = indices.apart_from(self)?;
            if action == Action::Add && is_summed_wide(self) {
                return summed_wide(self, &target, |sums| {
                    along_dim(sums, at, &indices, &given.to_dtype(DType::F32)?, action, operation)
                });
            }
            along_dim(&target, at, &indices, &given, action, operation)?;
            Ok(self)
        };
        match source {
            Operand::Tensor(source) => run().of(operation.name(), &[self, index, source]),
            Operand::Number(_) => run().of(operation.name(), &[self, index]),
        }
    }

    fn check_sizes_of_scatter(&self, index: &Self, source: &Operand<'_>, at: usize) -> Result<()> {
        let (own, indices) = (with_dimension(self)?, with_dimension(index)?);
        let checked = match source {
            Operand::Tensor(source) => {
                check_scattered(&own, &indices, Some((&with_dimension(source)?, source.sizes())), at)
            }
            Operand::Number(_) => check_scattered(&own, &indices, None, at),
        };
        checked.map_err(|error| if self.dim() == 0 && index.dim() == 0 { without_dimensions(&error) } else { error })
    }

    /// The number as a tensor with an element for each index. If the dtype does not hold the number, an error of the first
    /// index comes first on the host, as in torch.
    fn filled_for_scatter(&self, number: Scalar, indices: &Self, at: usize, operation: Reporter) -> Result<Self> {
        if let Err(misfit) = number.check_fits(self.dtype()) {
            if is_host(self.device())
                && let Some(&(element, first)) = values(indices)?.first()
            {
                let along = Along { size: self.sizes()[at], stride: self.strides()[at], wraps: false, operation };
                checked(&along, element, first).map_err(|error| error.in_dimension(at, IndexKernel::Elements))?;
            }
            return Err(misfit);
        }
        Self::full(&[], number, self.dtype(), self)?.expand(indices.sizes())
    }

    /// A copy with the slices of `source`, times `alpha`, added to those along `dim` that a list of indices names
    /// (`index_add`).
    ///
    /// # Errors
    /// The sizes or dtypes do not fit, the indices are no list of `i32` or `i64`, or one is negative or too large.
    pub fn index_add(&self, dim: i64, index: &Self, source: &Self, alpha: impl Into<Scalar>) -> Result<Self> {
        let made = self.contiguous_copy()?;
        made.index_add_(dim, index, source, alpha)?;
        Ok(made)
    }

    /// [`Self::index_add`] in place (`index_add_`).
    ///
    /// # Errors
    /// As for [`Self::index_add`], or several elements of the tensor lie at one place.
    pub fn index_add_(&self, dim: i64, index: &Self, source: &Self, alpha: impl Into<Scalar>) -> Result<&Self> {
        let alpha = alpha.into();
        if alpha.default_dtype().category() > self.dtype().category().max(Category::Integral) {
            return Err(invalid("For integral input tensors, argument alpha must not be a floating point number."));
        }
        refuse_float8("index_add", self.dtype())?;
        alpha.check_fits(self.dtype())?;
        let unit = !matches!(alpha, Scalar::Complex(_)) && alpha.to_f64().to_bits() == 1.0_f64.to_bits();
        let scaled = if unit { source.clone() } else { source.mul(alpha)? };
        self.slices_for(dim, index, &scaled, Action::Add, Reporter::IndexAdd)
    }

    /// A copy with slices of `source` in place of those along `dim` that a list of indices names (`index_copy`).
    ///
    /// # Errors
    /// As for [`Self::index_add`].
    pub fn index_copy(&self, dim: i64, index: &Self, source: &Self) -> Result<Self> {
        let policies = const { Policies::of("index_copy") };
        if let Some((_inside, [own, source])) = autocast::cast(policies, [self, source])? {
            return own.index_copy(dim, index, &source);
        }
        let made = self.contiguous_copy()?;
        made.index_copy_(dim, index, source)?;
        Ok(made)
    }

    /// [`Self::index_copy`] in place (`index_copy_`).
    ///
    /// # Errors
    /// As for [`Self::index_add_`].
    pub fn index_copy_(&self, dim: i64, index: &Self, source: &Self) -> Result<&Self> {
        refuse_float8("index_copy_cuda", self.dtype())?;
        self.slices_for(dim, index, source, Action::Scatter, Reporter::IndexCopy)
    }

    fn slices_for(&self, dim: i64, index: &Self, source: &Self, action: Action, operation: Reporter) -> Result<&Self> {
        let run = || {
            let at = wrap_dim(dim, self.dim())?;
            if action != Action::Add {
                check_overlap(self, &[])?;
            }
            match action {
                Action::Add => check_added(self, index, source, at)?,
                Action::Gather | Action::Scatter => check_copied(self, index, source, at)?,
            }
            let (target, given) = (with_dimension(self)?, with_dimension(source)?);
            check_overlap(&target, &[])?;
            check_apart(self, source)?;
            let adds_nothing = self.dim() > 1 && (is_host(self.device()) || given.numel() == 0);
            if self.numel() == 0 && (action != Action::Add || adds_nothing) {
                if action != Action::Add && given.numel() > 0 {
                    check_room(self, index, &given, at)?;
                }
                return Ok(self);
            }
            let spread = spread(index, given.sizes(), at)?;
            let (spread, given) = (spread.apart_from(self)?, given.apart_from(self)?);
            // torch's CPU implements `index_add` by `scatter_add` for matrices, and slice by slice for other tensors.
            if action == Action::Add && self.dim() == 2 && is_summed_wide(self) {
                return summed_wide(self, &target, |sums| {
                    along_dim(sums, at, &spread, &given.to_dtype(DType::F32)?, action, operation)
                });
            }
            along_dim(&target, at, &spread, &given, action, operation)?;
            Ok(self)
        };
        run().of(operation.name(), &[self, index, source])
    }

    /// The tensor, or a copy of it where it shares memory with one that is written.
    pub(crate) fn apart_from(&self, written: &Self) -> Result<Self> {
        if may_share(self, written) { self.contiguous_copy() } else { Ok(self.clone()) }
    }

    /// A copy with elements one after another.
    pub(crate) fn contiguous_copy(&self) -> Result<Self> {
        convert(self, self.dtype(), &contiguous_strides(self.sizes()))
    }
}

/// Whether `scatter_add` accumulates in `f32` and rounds once, as torch's CPU does for `f16` and `bf16`.
fn is_summed_wide(target: &Tensor) -> bool {
    is_host(target.device()) && matches!(target.dtype(), DType::F16 | DType::BF16)
}

/// Accumulates into an `f32` copy of `target`, a view of `tensor`, and rounds the sums into `target`.
fn summed_wide<'a>(tensor: &'a Tensor, target: &Tensor, add: impl FnOnce(&Tensor) -> Result<()>) -> Result<&'a Tensor> {
    let sums = target.to_dtype(DType::F32)?;
    add(&sums)?;
    target.copy_(&sums)?;
    Ok(tensor)
}

/// The error of sizes for a tensor and an index without dimensions.
fn without_dimensions(error: &Error) -> Error {
    invalid(error.to_string().replace("index [1]", "index []").replace("self [1]", "self []"))
}

/// Checks the sizes of the arguments of `scatter_` in torch's order; a number has no source. A source is a tensor with
/// dimensions, and the sizes that the caller gave it.
fn check_scattered(own: &Tensor, index: &Tensor, source: Option<(&Tensor, &[i64])>, at: usize) -> Result<()> {
    let other = if index.dim() == own.dim() {
        source.filter(|(source, _)| source.dim() != index.dim()).map(|_| "src")
    } else {
        Some("self")
    };
    if let (Some("src"), Some((source, given))) = (other, source) {
        // torch compares sizes first, and may ask the source for one that it lacks.
        let fits = |dim: usize| source.sizes().get(dim).is_none_or(|&size| index.sizes()[dim] <= size);
        let exceeds = (0..index.dim()).any(|dim| dim != at && index.sizes()[dim] > own.sizes()[dim]);
        if !given.is_empty() && !exceeds && (0..source.dim().min(own.dim())).all(fits) && source.dim() < own.dim() {
            wrap_dim(i64::try_from(source.dim()).unwrap_or(0), source.dim())?;
        }
    }
    if let Some(other) = other {
        return Err(invalid(format!("Index tensor must have the same number of dimensions as {other} tensor")));
    }
    let exceeds = |tensor: &Tensor, but: Option<usize>| {
        (0..index.dim()).any(|dim| Some(dim) != but && index.sizes()[dim] > tensor.sizes()[dim])
    };
    if exceeds(own, Some(at)) || source.is_some_and(|(source, _)| exceeds(source, None)) {
        let rest =
            source.map_or_else(String::new, |(_, sizes)| format!(" and to be no larger size than src {sizes:?}"));
        let (index, own) = (index.sizes(), own.sizes());
        return Err(invalid(format!(
            "Expected index {index:?} to be no larger than self {own:?} apart from dimension {at}{rest}"
        )));
    }
    Ok(())
}

/// Refuses slices that are copied to a dimension of no elements, as torch does: by the memory that a view of the slices'
/// sizes would need.
fn check_room(own: &Tensor, index: &Tensor, source: &Tensor, at: usize) -> Result<()> {
    let mut strides = own.strides().to_vec();
    strides.resize(source.dim(), 1);
    strides[at] = 0;
    let (sizes, offset, width) = (source.sizes(), own.storage_offset(), own.element_size());
    // 128 bits hold the products of any sizes and strides.
    let step = |(&size, &stride): (&i64, &i64)| (i128::from(size) - 1) * i128::from(stride);
    let reach: i128 = sizes.iter().zip(&strides).map(step).sum();
    let (needed, bytes) = ((i128::from(offset) + reach + 1) * width as i128, own.storage().nbytes());
    if needed > bytes as i128 {
        return Err(invalid(format!(
            "setStorage: sizes {sizes:?}, strides {strides:?}, storage offset {offset}, and itemsize {width} requiring a storage \
             size of {needed} are out of bounds for storage of size {bytes}"
        )));
    }
    let first = if is_host(index.device()) { values(index)?.first().map_or(0, |&(_, index)| index) } else { 0 };
    Err(invalid(format!("index_copy_(): index {first} is out of bounds for dimension {at} with size 0")))
}

/// Checks the arguments of `index_add_` in torch's order.
fn check_added(own: &Tensor, index: &Tensor, source: &Tensor, at: usize) -> Result<()> {
    if index.dim() > 1 {
        let (count, dtype, sizes) = (index.dim(), index.dtype().scalar_type_name(), index.sizes());
        return Err(invalid(format!(
            "index_add_(): Index is supposed to be a vector, but got dim: {count} with type: {dtype} and size: {sizes:?}"
        )));
    }
    let found = index.dtype().scalar_type_name();
    check_integers(index, &format!("index_add_(): Expected dtype int32/int64 for index but got: {found}"))?;
    if own.dtype() != source.dtype() {
        let (own, given) = (own.dtype().scalar_type_name(), source.dtype().scalar_type_name());
        return Err(invalid(format!("index_add_(): self ({own}) and source ({given}) must have the same scalar type")));
    }
    if at > 0 && at >= source.dim() {
        let rank = source.dim();
        return Err(invalid(format!(
            "index_add_(): Indexing dim {at} is out of bounds of the source tensor with dim {rank}"
        )));
    }
    let (count, size) = (index.numel(), source.sizes().get(at).copied());
    if size.unwrap_or(1) != count {
        return Err(invalid(match size {
            None => format!("Dimension specified as {at} but tensor has no dimensions"),
            Some(size) => format!(
                "index_add_(): Number of indices ({count}) should be equal to source.size(dim): ({size}), for dim: {at}"
            ),
        }));
    }
    let fits = source.dim() == own.dim()
        && (0..own.dim()).all(|other| other == at || source.sizes()[other] == own.sizes()[other]);
    if !fits {
        let (own, source) = (own.sizes(), source.sizes());
        return Err(invalid(format!(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {own:?} \
             source.shape = {source:?}"
        )));
    }
    Ok(())
}

/// Checks the arguments of `index_copy_` in torch's order.
fn check_copied(own: &Tensor, index: &Tensor, source: &Tensor, at: usize) -> Result<()> {
    if index.dim() > 1 {
        let count = index.dim();
        return Err(invalid(format!("index_copy_(): Index should have dimension 1 or 0 (got {count})")));
    }
    if source.dim() == 0 && index.numel() != 1 {
        let count = index.numel();
        return Err(invalid(format!(
            "index_copy_(): When source is scalar, index should have one element (got {count})"
        )));
    }
    if own.dim() != source.dim() && own.dim() != 0 && source.dim() != 0 {
        let (given, own) = (source.dim(), own.dim());
        return Err(invalid(format!(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source \
             dimensionality ({given}), destination dimensionality ({own})"
        )));
    }
    let found = index.dtype().scalar_type_name();
    if index.dtype() != DType::I64 {
        return Err(invalid(format!("index_copy_(): Expected a long tensor for index, but got {found}")));
    }
    if own.dtype() != source.dtype() {
        let (own, given) = (own.dtype().scalar_type_name(), source.dtype().scalar_type_name());
        return Err(invalid(format!(
            "index_copy_(): self and source expected to have the same dtype, but got (self) {own} and (source) {given}"
        )));
    }
    let rest = |tensor: &Tensor| -> Vec<i64> {
        tensor.sizes().iter().enumerate().filter(|(dim, _)| *dim != at).map(|(_, size)| *size).collect()
    };
    if rest(own) != rest(source) {
        let listed = |sizes: Vec<i64>| sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        let (own, given) = (listed(rest(own)), listed(rest(source)));
        return Err(invalid(format!(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {own} at \
             dimension {at} and source slice shape: {given} at dimension 0."
        )));
    }
    let size = with_dimension(source)?.sizes()[at];
    if size != index.numel() {
        let count = index.numel();
        return Err(invalid(format!(
            "index_copy_(): Number of indices ({count}) should be equal to source.size(dim) ({size})"
        )));
    }
    Ok(())
}

/// Adds an element to another of the same dtype; integers wrap around.
pub(super) fn add(to: &mut [u8], from: &[u8], dtype: DType) {
    macro_rules! sum {
        ($type:ty, $add:expr) => {{
            let (a, b) = (bytemuck::pod_read_unaligned::<$type>(to), bytemuck::pod_read_unaligned::<$type>(from));
            let add: fn($type, $type) -> $type = $add;
            to.copy_from_slice(&add(a, b).to_le_bytes());
        }};
    }
    match dtype {
        DType::Bool => to[0] |= from[0],
        DType::U8 => sum!(u8, u8::wrapping_add),
        DType::I8 => sum!(i8, i8::wrapping_add),
        DType::I16 => sum!(i16, i16::wrapping_add),
        DType::I32 => sum!(i32, i32::wrapping_add),
        DType::I64 => sum!(i64, i64::wrapping_add),
        DType::F16 => sum!(f16, |a, b| f16::from_f32(a.to_f32() + b.to_f32())),
        DType::BF16 => sum!(bf16, |a, b| bf16::from_f32(a.to_f32() + b.to_f32())),
        DType::F32 => sum!(f32, |a, b| a + b),
        DType::F64 => sum!(f64, |a, b| a + b),
        DType::F8E4M3FN | DType::F8E5M2 | DType::C32 | DType::C64 | DType::C128 => {
            let half = to.len() / 2;
            add(&mut to[..half], &from[..half], dtype.to_real());
            add(&mut to[half..], &from[half..], dtype.to_real());
        }
    }
}

/// Refuses to write elements of another dtype.
pub(super) fn check_same_dtype(target: &Tensor, source: &Tensor) -> Result<()> {
    if target.dtype() == source.dtype() {
        return Ok(());
    }
    Err(TensorError::Invalid(format!(
        "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
        target.dtype().scalar_type_name(),
        source.dtype().scalar_type_name()
    ))
    .into())
}
