//! Elements that a mask keeps, and where elements are not zero.

use crate::base::dtype::DType;
use crate::base::error::{Result, invalid, refuse_float8};
use crate::base::shape::{self, Dims};
use crate::launch::common_device;
use crate::launch::library::index::{self, Action, Along, Indexed};
use crate::launch::library::select::Kept;
use crate::report::{FEW_ELEMENTS, Reporter};
use crate::tensor::{Context, Tensor, check_overlap, is_host};
use c10_core::host_memory;

impl Tensor {
    /// The coordinates of the elements that are not zero, in row-major order: a row for each (`nonzero`). This waits
    /// for the device, since the result's size depends on the elements.
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn nonzero(&self) -> Result<Self> {
        let run = || {
            refuse_float8("nonzero_cuda", self.dtype())?;
            let mask = self.to_dtype(DType::Bool)?.contiguous()?;
            let rank = i64::try_from(self.dim()).unwrap_or(0);
            let (numel, sizes) = (self.numel(), self.sizes());
            // Each dimension's numbers lie together, as torch has it.
            let rows = |total: i64| Self::uninitialized(&[rank, total], DType::I64, self);
            let none = || rows(0)?.with_layout(Dims::from_slice(&[0, rank]), Dims::from_slice(&[1, 0]), 0);
            if numel == 0 {
                return none();
            }
            if is_host(self.device()) {
                let kept = kept_on_host(&mask)?;
                if kept.is_empty() {
                    return none();
                }
                let mut numbers = host_memory::with_capacity(kept.len().saturating_mul(sizes.len()))?;
                for dim in 0..sizes.len() {
                    let below = shape::numel(&sizes[dim + 1..]);
                    numbers.extend(kept.iter().map(|&place| place / below % sizes[dim]));
                }
                let total = i64::try_from(kept.len()).unwrap_or(0);
                return Self::from_slice(&numbers, &[rank, total])?.t();
            }
            let kept = Kept::count(&mask)?;
            let total = kept.total()?;
            if total == 0 {
                return none();
            }
            let out = rows(total)?;
            if rank > 0 {
                kept.coordinates(&out, sizes, total)?;
            }
            out.t()
        };
        run().of("nonzero", &[self])
    }

    /// The elements where the mask is true, in row-major order; tensor and mask broadcast (`masked_select`). This waits
    /// for the device.
    ///
    /// # Errors
    /// The mask is no boolean, the sizes do not broadcast, there is not enough memory, or the device failed.
    pub fn masked_select(&self, mask: &Self) -> Result<Self> {
        let run = || {
            check_mask(mask, "masked_select: expected BoolTensor for mask")?;
            common_device([self, mask])?;
            let sizes = shape::broadcast(mask.sizes(), self.sizes())?;
            let (elements, mask) = (self.expand(&sizes)?.packed()?, mask.expand(&sizes)?.contiguous()?);
            let empty = |total: i64| Self::uninitialized(&[total], self.dtype(), self);
            if mask.numel() == 0 {
                return empty(0);
            }
            if is_host(self.device()) {
                let (bytes, width) = (elements.to_bytes()?, self.element_size());
                let mask = mask.to_bytes()?;
                let total = mask.iter().filter(|keep| **keep != 0).count();
                let mut kept = host_memory::with_capacity(total * width)?;
                for (element, _) in bytes.chunks_exact(width).zip(mask).filter(|(_, keep)| *keep != 0) {
                    kept.extend_from_slice(element);
                }
                return Self::from_bytes(&kept, &[i64::try_from(kept.len() / width).unwrap_or(0)], self.dtype());
            }
            let kept = Kept::count(&mask)?;
            let out = empty(kept.total()?)?;
            if out.numel() > 0 {
                kept.elements(&out, &elements)?;
            }
            Ok(out)
        };
        run().of("masked_select", &[self, mask])
    }

    /// Returns a copy in which the elements where the mask is true are replaced by the elements of `source`, in order
    /// (`masked_scatter`). The call does not wait for a device: a source with too few elements is detected on the
    /// device and reported by the next call that waits for it.
    ///
    /// # Errors
    /// The dtypes differ, the mask is no boolean or does not broadcast, or the source has too few elements.
    pub fn masked_scatter(&self, mask: &Self, source: &Self) -> Result<Self> {
        check_mask(mask, "masked_scatter_ only supports boolean masks, but got mask with dtype other than Bool")?;
        if self.dtype() != source.dtype() {
            return Err(invalid("masked_scatter: expected self and source to have same dtypes"));
        }
        refuse_float8("masked_scatter_", self.dtype())?;
        common_device([self, mask, source])?;
        let sizes: Dims = shape::broadcast(self.sizes(), mask.sizes())?;
        let (out, mask) = (self.expand(&sizes)?.contiguous_copy()?, mask.expand(&sizes)?.contiguous()?);
        let source = source.packed()?;
        if mask.numel() == 0 {
            return Ok(out);
        }
        if is_host(self.device()) {
            let kept = kept_on_host(&mask)?;
            if source.numel() < i64::try_from(kept.len()).unwrap_or(i64::MAX) {
                return Err(invalid(FEW_ELEMENTS));
            }
            let (from, width) = (source.to_bytes()?, self.element_size());
            let mut to = out.plain_storage()?.host_mut()?;
            for (&place, element) in kept.iter().zip(from.chunks_exact(width)) {
                let at = usize::try_from(place).unwrap_or(0) * width;
                to[at..at + width].copy_from_slice(element);
            }
            drop(to);
            return Ok(out);
        }
        let kept = Kept::count(&mask)?;
        let source = if source.numel() < mask.numel() { kept.padded(&source)? } else { source };
        kept.fill(&out, &source)?;
        Ok(out)
    }

    /// [`Self::masked_scatter`] in place (`masked_scatter_`).
    ///
    /// # Errors
    /// As for [`Self::masked_scatter`], or several elements of the tensor lie at one place.
    pub fn masked_scatter_(&self, mask: &Self, source: &Self) -> Result<&Self> {
        check_overlap(self, &[])?;
        self.copy_(&self.masked_scatter(&mask.expand(self.sizes())?, source)?)
    }
}

/// The places where a contiguous mask of one dimension is true, with the counts that found them on a device.
pub(crate) fn nonzero_flat(mask: &Tensor) -> Result<(Tensor, Option<Kept<'_>>)> {
    if is_host(mask.device()) {
        let kept = kept_on_host(mask)?;
        return Ok((Tensor::from_slice(&kept, &[i64::try_from(kept.len()).unwrap_or(0)])?, None));
    }
    let kept = Kept::count(mask)?;
    let total = kept.total()?;
    let out = Tensor::uninitialized(&[total], DType::I64, mask)?;
    if total > 0 {
        kept.coordinates(&out, mask.sizes(), total)?;
    }
    Ok((out, Some(kept)))
}

impl Kept<'_> {
    /// Returns the source, zero-padded to the length of the mask so that no mask reads past its end. The device reports
    /// an error if the mask selects more elements than the source has.
    fn padded(&self, source: &Tensor) -> Result<Tensor> {
        let (own, length) = (source.numel(), self.length());
        let padded = Tensor::zeros(&[length], source.dtype(), source)?;
        if own > 0 {
            padded.narrow(0, 0, own)?.copy_(&source.view(&[own])?)?;
        }
        // The count is used as an index that is valid only if the source has enough elements; the element read is
        // discarded.
        let (zero, total) = (Tensor::zeros(&[1], DType::U8, source)?, self.counted()?);
        let along = Along { size: own + 1, stride: 0, wraps: false, operation: Reporter::MaskedScatter };
        let read = Tensor::uninitialized(&[1], DType::U8, source)?;
        index::run(&Indexed { pointed: &zero, along, index: &total, other: &read }, Action::Gather)?;
        Ok(padded)
    }
}

fn check_mask(mask: &Tensor, text: &str) -> Result<()> {
    if mask.dtype() == DType::Bool { Ok(()) } else { Err(invalid(text)) }
}

/// The places in row-major order where a mask is true.
fn kept_on_host(mask: &Tensor) -> Result<Vec<i64>> {
    let bytes = mask.to_bytes()?;
    let total = bytes.iter().filter(|keep| **keep != 0).count();
    let places = (0..).zip(bytes).filter(|(_, keep)| *keep != 0).map(|(place, _)| place);
    Ok(host_memory::collected(total, places)?)
}
