//! In which order a distribution goes over the elements of a tensor, and by which launch, both as torch has it: the
//! numbers that an element gets follow from that.

use c10_core::{DeviceIndex, Runtime};

use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::iterate::Iteration;
use crate::tensor::Tensor;

/// Threads of a block.
pub(crate) const BLOCK: u32 = 256;

/// Elements that are filled by one launch: at most 2^31 - 1 of them, which lie in as many bytes.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The first element, in bytes from the begin of the storage.
    pub(crate) offset: usize,
    /// Sizes, the fastest dimension first.
    pub(crate) sizes: Dims,
    /// Strides in bytes.
    pub(crate) strides: Dims,
    pub(crate) numel: u64,
}

/// The launch that torch would make: `threads` go over the elements in `steps` steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) threads: u32,
    pub(crate) steps: u32,
}

impl Schedule {
    /// The schedule for elements of which each thread fills `unroll` in a step.
    #[expect(clippy::cast_possible_truncation, reason = "a device has fewer than 2^32 threads")]
    pub(crate) fn of(device: DeviceIndex, numel: u64, unroll: u32) -> Result<Self> {
        let blocks = numel.div_ceil(u64::from(BLOCK)).min(u64::from(resident_blocks(device)?));
        let threads = blocks as u32 * BLOCK;
        let steps = numel.div_ceil(u64::from(threads) * u64::from(unroll));
        Ok(Self { threads, steps: u32::try_from(steps).unwrap_or(u32::MAX) })
    }

    /// Words of each thread's sequence that the launch uses up.
    pub(crate) fn increment(&self) -> u64 {
        u64::from(self.steps) * 4
    }
}

/// Blocks that the device keeps at once.
fn resident_blocks(device: DeviceIndex) -> Result<u32> {
    let properties = Runtime::with_current(|runtime| Shapes::of(runtime, device))?;
    Ok(properties.max(1))
}

/// The number of blocks for each device that was asked about.
#[derive(Default)]
struct Shapes(c10_core::locks::RwLock<std::collections::BTreeMap<DeviceIndex, u32>>);

impl Shapes {
    #[expect(clippy::cast_sign_loss, reason = "counts of a device are not negative")]
    fn of(runtime: &Runtime, device: DeviceIndex) -> Result<u32> {
        let shapes = runtime.extension::<Self>();
        if let Some(&known) = shapes.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&device) {
            return Ok(known);
        }
        let properties = runtime.devices().properties(device)?;
        let on_one = properties.max_threads_per_multi_processor as u32 / BLOCK;
        let blocks = properties.multi_processor_count as u32 * on_one;
        shapes.0.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(device, blocks);
        Ok(blocks)
    }
}

/// The elements of a tensor in the order of memory, as one part or, before it is split, as more than a part may be.
pub(crate) fn whole(tensor: &Tensor) -> Part {
    let iteration = Iteration::new(tensor.sizes(), &[tensor], false);
    let strides = if tensor.dim() == 0 {
        Dims::from_elem(i64::try_from(tensor.element_size()).unwrap_or(i64::MAX), 1)
    } else {
        iteration.strides[0].clone()
    };
    let sizes = if tensor.dim() == 0 { Dims::from_elem(1, 1) } else { iteration.sizes };
    Part { offset: tensor.byte_offset(), sizes, strides, numel: u64::try_from(iteration.numel).unwrap_or(0) }
}

impl Part {
    /// Whether the elements lie one after another.
    pub(crate) fn is_dense(&self, itemsize: usize) -> bool {
        let one = i64::try_from(itemsize).unwrap_or(i64::MAX);
        self.sizes.len() == 1 && (self.strides[0] == one || self.numel == 1)
    }

    /// Whether places of elements are numbers of 32 bits (`can_use_32bit_indexing`).
    pub(crate) fn is_narrow(&self) -> bool {
        let limit = i64::from(i32::MAX);
        let last: i64 = self.sizes.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        self.numel <= limit.unsigned_abs() && last < limit
    }

    /// The bytes from the first element to the end of the last one.
    pub(crate) fn extent(&self, itemsize: usize) -> usize {
        let last: i64 = self.sizes.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        usize::try_from(last).unwrap_or(0) + itemsize
    }

    /// The halves along the dimension that reaches farthest, the lower one first.
    pub(crate) fn halves(&self) -> [Self; 2] {
        let reach = |dim: usize| (self.sizes[dim] - 1) * self.strides[dim].abs();
        // Of equals the slowest dimension counts.
        let dim = (0..self.sizes.len())
            .rev()
            .fold(self.sizes.len() - 1, |best, dim| if reach(dim) > reach(best) { dim } else { best });
        let lower = self.sizes[dim] / 2;
        let narrowed = |start: i64, size: i64| {
            let mut part = self.clone();
            part.offset += usize::try_from(start * self.strides[dim]).unwrap_or(0);
            part.sizes[dim] = size;
            part.numel = part.sizes.iter().product::<i64>().unsigned_abs();
            part
        };
        [narrowed(0, lower), narrowed(lower, self.sizes[dim] - lower)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_halved_until_they_are_narrow() {
        let part = Part {
            offset: 0,
            sizes: Dims::from_slice(&[1 << 20, 3 << 10]),
            strides: Dims::from_slice(&[4, 4 << 20]),
            numel: 3 << 30,
        };
        assert!(!part.is_narrow());
        let [lower, upper] = part.halves();
        assert_eq!((lower.numel, lower.offset, lower.sizes.as_slice()), (3 << 29, 0, [1 << 20, 3 << 9].as_slice()));
        assert_eq!((upper.numel, upper.offset), (3 << 29, 3 << 31));
        let [first, second] =
            Part { sizes: Dims::from_slice(&[5]), strides: Dims::from_slice(&[2]), numel: 5, ..part }.halves();
        assert_eq!((first.numel, second.numel, second.offset), (2, 3, 4));
        assert!(first.is_narrow() && first.is_dense(2) && !first.is_dense(4));
    }
}
