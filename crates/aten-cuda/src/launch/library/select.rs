//! Launches of `kernels/select.cu`: what a mask keeps.
//!
//! # Safety
//! Masks, sources and places are contiguous tensors of `n` elements, which each function checks; outputs have an element
//! for each that is kept, which [`Kept`] has counted with the same mask.
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
        // SAFETY: `out` has `total` numbers for each dimension; the sizes multiply to the mask's elements.
        unsafe { super::launch(&TEXT, "place_coordinates", self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes the elements of a contiguous tensor that are kept, one after another.
    pub(crate) fn elements(&self, out: &Tensor, from: &Tensor) -> Result<()> {
        debug_assert!(from.is_contiguous() && from.numel() == self.mask.numel(), "an element for each of the mask");
        let kernel = ["place_1", "place_2", "place_4", "place_8", "place_16"][width(from)];
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(from)?, Arg::I64(from.numel())];
        // SAFETY: `from` has an element for each of the mask, and `out` one for each that is kept.
        unsafe { super::launch(&TEXT, kernel, self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes elements of a contiguous source to the kept places of a contiguous tensor. The source has enough.
    pub(crate) fn fill(&self, out: &Tensor, from: &Tensor) -> Result<()> {
        debug_assert!(out.is_contiguous() && out.numel() == self.mask.numel(), "an element for each of the mask");
        let kernel = ["fill_1", "fill_2", "fill_4", "fill_8", "fill_16"][width(from)];
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(from)?, Arg::I64(out.numel())];
        // SAFETY: `out` has an element for each of the mask, and `from` one for each that is kept.
        unsafe { super::launch(&TEXT, kernel, self.device, &self.config, &arguments)? };
        Ok(())
    }

    /// Writes the number of the group of each element of a sorted sequence, whose groups begin where the mask says, to
    /// its place in `out`.
    pub(crate) fn groups(&self, out: &Tensor, places: &Tensor) -> Result<()> {
        debug_assert!(places.is_contiguous() && places.numel() == self.mask.numel(), "a place for each of the mask");
        let arguments = [memory(out)?, self.counts()?, memory(self.mask)?, memory(places)?, Arg::I64(places.numel())];
        // SAFETY: the places are those of a sort of `numel` elements, each of which is there once.
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
