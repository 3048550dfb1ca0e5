//! Where the tensors of a file are put in a device's memory.
//!
//! A tensor has memory of its own, so that it is given back when the tensor is. Only small tensors that lie one behind the
//! other share: a copy costs microseconds however small it is, and a share is no larger than the allocator's own small
//! segments, so that one that is kept alive by one of its tensors holds little back.

use std::ops::Range;

use crate::safetensors::header::Stored;

/// Tensors of fewer bytes share memory.
const SMALL: u64 = 256 << 10;

/// The most bytes that are shared.
const SHARE: u64 = 2 << 20;

/// Memory for one or several tensors: their indices, and the bytes of the file that go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tensors: Range<usize>,
    pub(crate) bytes: Range<u64>,
}

/// Cuts a file's tensors, in the order of their bytes, into places.
pub(crate) fn places(tensors: &[Stored]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut is_shared = false;
    for (index, tensor) in tensors.iter().enumerate() {
        let bytes = tensor.bytes.clone();
        let is_small = bytes.end - bytes.start < SMALL;
        match places.last_mut() {
            Some(last) if is_small && is_shared && fits(last, tensor) => {
                last.tensors.end = index + 1;
                last.bytes.end = bytes.end;
            }
            _ => places.push(Place { tensors: index..index + 1, bytes }),
        }
        is_shared = is_small;
    }
    places
}

/// Whether a tensor may follow those of a place: its elements must lie at multiples of their size from the beginning.
fn fits(place: &Place, tensor: &Stored) -> bool {
    let (start, end) = (place.bytes.start, tensor.bytes.end);
    end - start <= SHARE && (tensor.bytes.start - start).is_multiple_of(tensor.dtype.itemsize() as u64)
}

#[cfg(test)]
mod tests {
    use aten_cuda::DType;

    use super::*;

    #[test]
    fn only_small_neighbours_share() {
        let mut at = 0;
        let mut tensor = |dtype: DType, bytes: u64| {
            at += bytes;
            Stored { name: String::new(), dtype, sizes: Vec::new(), bytes: at - bytes..at }
        };
        let tensors = [
            tensor(DType::F32, 1 << 20),
            tensor(DType::F32, 8),
            tensor(DType::Bool, 1),
            // Its elements would lie at odd places.
            tensor(DType::BF16, 4),
            tensor(DType::BF16, 2),
            tensor(DType::F32, 1 << 20),
        ];
        let found: Vec<_> = places(&tensors).into_iter().map(|place| place.tensors).collect();
        assert_eq!(found, [0..1, 1..3, 3..5, 5..6]);
        let mut at = 0;
        let many: Vec<_> = (0..100)
            .map(|_| {
                at += 100 << 10;
                Stored { name: String::new(), dtype: DType::I8, sizes: Vec::new(), bytes: at - (100 << 10)..at }
            })
            .collect();
        assert!(places(&many).iter().all(|place| place.bytes.end - place.bytes.start <= SHARE));
        assert_eq!(places(&many).len(), 5);
    }
}
