//! Launches of `kernels/select.cu`: what a mask keeps.
//!
//! # Safety
//! Masks, sources and places are contiguous tensors of `n` elements, which each function checks. Outputs and sources that
//! have an element for each that is kept are bounded by their own number of elements: the mask may have changed since
//! [`Kept`] has counted it.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{Arg, DeviceIndex, LaunchConfig};

use super::{Packed, Text, memory};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::storage::deferred;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "select", ptx: include_str!("../../../kernels/select.ptx") };

/// Dimensions of a shape.
const RANK: usize = 16;
const THREADS: u32 = 256;
/// Elements of a block.
const BLOCK: u64 = 256 * 16;

/// How many elements a mask keeps before each block.
pub(crate) struct Kept<'a> {
    mask: &'a Tensor,
    counts: Tensor,
    config: LaunchConfig,
    device: DeviceIndex,
}

impl<'a> Kept<'a> {
    /// Counts what a contiguous mask with at least one element keeps.
    pub(crate) fn count(mask: &'a Tensor) -> Result<Self> {
        // How much is kept has to be known before there is memory for it.
        deferred::settle("values are read");
        let numel = mask.numel().unsigned_abs();
        let config = super::row(numel.div_ceil(BLOCK) * u64::from(THREADS), THREADS)?;
        let counts = Tensor::uninitialized(&[i64::from(config.grid[0]) + 1], DType::I64, mask)?;
        let Some(buffer) = mask.storage().buffer() else { return Err(invalid("a mask on no device")) };
        debug_assert!(mask.is_contiguous() && mask.dtype() == DType::Bool, "the mask is bytes one after another");
        let kept = Self { mask, counts, config, device: buffer.device_index() };
        let arguments = [kept.counts()?, memory(mask)?, Arg::I64(mask.numel())];
        // SAFETY: a count for each block, and `numel` bytes of the mask.
        unsafe { super::launch(&TEXT, "count_kept", kept.device, &config, &arguments)? };
        let one = LaunchConfig { grid: [1; 3], ..config };
        // SAFETY: the counts and behind them the place of their sum.
        unsafe {
            super::launch(&TEXT, "sum_counts", kept.device, &one, &[kept.counts()?, Arg::I64(config.grid[0].into())])?
        };
        Ok(kept)
    }

    /// How many elements the mask keeps in all. This waits for the device.
    pub(crate) fn total(&self) -> Result<i64> {
        Ok(self.counted()?.item()?.to_i64())
    }

    /// The number of elements that the mask keeps, on the device: a tensor of one element.
    pub(crate) fn counted(&self) -> Result<Tensor> {
        self.counts.narrow(0, -1, 1)
    }

    /// Number of elements of the mask.
    pub(crate) fn length(&self) -> i64 {
        self.mask.numel()
    }

    /// Writes the coordinates of what is kept: to each row of `out`, which is contiguous, those of one dimension of
    /// `sizes`.
    pub(crate) fn coordinates(&self, out: &Tensor, sizes: &[i64], total: i64) -> Result<()> {
        if sizes.len() > RANK {
            return Err(invalid(format!("nonzero is not supported for tensors of more than {RANK} dimensions")));
        }
        let mut shape = Packed::default();
        shape.half(i32::try_from(sizes.len()).unwrap_or(0));
        shape.half(0);
        shape.words(&sizes.iter().rev().copied().collect::<Vec<i64>>(), RANK);
        let arguments = [
            memory(out)?,
            self.counts()?,
            memory(self.mask)?,
            Arg::I64(self.mask.numel()),
            Arg::I64(total),
            shape.argument(),
        ];
        let rank = i64::try_from(sizes.len()).unwrap_or(0);
        debug_assert!(out.numel() == total * rank, "a number for each kept element and dimension");
        // SAFETY: `out` has `total` numbers for each dimension; the sizes multiply to the mask's elements.
        unsafe { super::launch(&TEXT, "place_coordinates", self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes the elements of a contiguous tensor that are kept, one after another.
    pub(crate) fn elements(&self, out: &Tensor, from: &Tensor) -> Result<()> {
        debug_assert!(from.is_contiguous() && from.numel() == self.mask.numel(), "an element for each of the mask");
        let kernel = ["place_1", "place_2", "place_4", "place_8", "place_16"][width(from)];
        let (n, kept) = (Arg::I64(from.numel()), Arg::I64(out.numel()));
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(from)?, n, kept];
        // SAFETY: `from` has an element for each of the mask, and no more than `out` has are written.
        unsafe { super::launch(&TEXT, kernel, self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes elements of a contiguous source to the kept places of a contiguous tensor, as long as there are any.
    pub(crate) fn fill(&self, out: &Tensor, from: &Tensor) -> Result<()> {
        debug_assert!(out.is_contiguous() && out.numel() == self.mask.numel(), "an element for each of the mask");
        let kernel = ["fill_1", "fill_2", "fill_4", "fill_8", "fill_16"][width(from)];
        let (n, given) = (Arg::I64(out.numel()), Arg::I64(from.numel()));
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(from)?, n, given];
        // SAFETY: `out` has an element for each of the mask, and no more than `from` has are read.
        unsafe { super::launch(&TEXT, kernel, self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes the number of the group of each element of a sorted sequence, whose groups begin where the mask says, to
    /// its place in `out`.
    pub(crate) fn groups(&self, out: &Tensor, places: &Tensor) -> Result<()> {
        debug_assert!(places.is_contiguous() && places.numel() == self.mask.numel(), "a place for each of the mask");
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(places)?, Arg::I64(places.numel())];
        debug_assert!(out.numel() == places.numel(), "a group for each element");
        // SAFETY: `out` has an element for each of the mask, and places outside of it are left out.
        unsafe { super::launch(&TEXT, "place_groups", self.device, &self.config, &arguments)? };
        Ok(())
    }

    fn counts(&self) -> Result<Arg<'_>> {
        memory(&self.counts)
    }
}

fn width(tensor: &Tensor) -> usize {
    tensor.element_size().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every memory is an allocation of the driver, which the simulated device checks the bounds of.
    #[test]
    fn a_mask_that_changes_after_the_count_reaches_nothing_outside() -> Result<()> {
        let simulated = testkit::simulated_runtime();
        simulated.runtime().memory().enable_caching(false);
        let n = 9000;
        for dtype in [DType::U8, DType::BF16, DType::F32, DType::I64, DType::C128] {
            let mask = Tensor::zeros(&[n], DType::Bool, "cuda")?;
            mask.narrow(0, 10, 3)?.fill_(true)?;
            let kept = Kept::count(&mask)?;
            let total = kept.total()?;
            assert_eq!(total, 3);
            mask.fill_(true)?;

            let written = |tensor: &Tensor| -> Result<Vec<usize>> {
                let is_written = tensor.ne(0)?.to_bools()?;
                Ok((0..is_written.len()).filter(|&at| is_written[at]).collect())
            };
            let (from, whole) = (Tensor::ones(&[n], dtype, "cuda")?, Tensor::zeros(&[n], dtype, "cuda")?);
            kept.elements(&whole.narrow(0, 4, total)?, &from)?;
            assert_eq!(written(&whole)?, [4, 5, 6], "{dtype}");

            let (source, out) = (Tensor::ones(&[total], dtype, "cuda")?, Tensor::zeros(&[n], dtype, "cuda")?);
            kept.fill(&out, &source)?;
            assert_eq!(written(&out)?, [0, 1, 2], "{dtype}");

            let whole = Tensor::zeros(&[n], DType::I64, "cuda")?;
            let out = whole.narrow(0, 4, 2 * total)?.view(&[2, total])?;
            kept.coordinates(&out, &[n / 10, 10], total)?;
            assert_eq!(out.to_vec::<i64>()?, [0, 0, 0, 0, 1, 2], "{dtype}");
            assert_eq!(written(&whole)?, [8, 9], "{dtype}");
        }
        Ok(())
    }

    #[test]
    fn groups_of_places_that_are_none_are_left_out() -> Result<()> {
        let simulated = testkit::simulated_runtime();
        simulated.runtime().memory().enable_caching(false);
        let n = 5000;
        let mask = Tensor::ones(&[n], DType::Bool, "cuda")?;
        let kept = Kept::count(&mask)?;
        let out = Tensor::full(&[n], 7, DType::I64, "cuda")?;
        for place in [n, i64::MAX, i64::MIN, -1] {
            kept.groups(&out, &Tensor::full(&[n], place, DType::I64, "cuda")?)?;
        }
        kept.groups(&out, &Tensor::arange(0, n, 1, None, "cuda")?.flip(&[0])?)?;
        assert_eq!(out.to_vec::<i64>()?, (0..n).rev().collect::<Vec<_>>());
        Ok(())
    }
}
