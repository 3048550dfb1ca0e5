//! What is said of tensors in memory to describe them to the unit that copies tiles of them.

/// What the elements of a [`crate::TensorMap`] are. Zeros of this type stand for what lies outside the tensor.
///
/// ```
/// use c10_core::TensorMapElement;
///
/// assert_eq!((TensorMapElement::BF16.size(), TensorMapElement::TF32.size()), (2, 4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorMapElement {
    /// Bytes.
    U8,
    /// 16-bit floats with 10 bits of mantissa.
    F16,
    /// 16-bit floats with 7 bits of mantissa.
    BF16,
    /// 32-bit floats.
    F32,
    /// 32-bit floats that are rounded to 10 bits of mantissa while they are copied.
    TF32,
}

impl TensorMapElement {
    /// Bytes of an element.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::TF32 => 4,
        }
    }
}

/// One dimension of a [`crate::TensorMap`].
///
/// ```
/// use c10_core::TensorMapDim;
///
/// // The rows of a matrix of 4096 columns of 16-bit floats, 128 of them at once.
/// let rows = TensorMapDim { size: 1000, step: 4096 * 2, tile: 128 };
/// assert_eq!(rows.size.div_ceil(rows.tile.into()), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapDim {
    /// Elements.
    pub size: u64,
    /// Bytes from one element to the next: a multiple of 16. Of the first dimension it is the element's size, whatever is
    /// said here.
    pub step: u64,
    /// Elements of a tile, at most 256.
    pub tile: u32,
}

/// What a [`crate::TensorMap`] describes: the elements in memory and the tiles that are copied at once.
///
/// ```
/// use c10_core::{TensorMapDim, TensorMapElement, TensorMapLayout};
///
/// let dims = [TensorMapDim { size: 4096, step: 2, tile: 64 }, TensorMapDim { size: 1000, step: 8192, tile: 128 }];
/// let layout = TensorMapLayout { element: TensorMapElement::BF16, dims: &dims };
/// let tile: u32 = layout.dims.iter().map(|dim| dim.tile).product();
/// assert_eq!(tile * 2, 16_384, "bytes of shared memory that a tile takes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapLayout<'a> {
    /// What the elements are.
    pub element: TensorMapElement,
    /// One to five dimensions. Neighbours along the first one lie together in memory; a tile has at most 128 bytes along
    /// it, whose chunks of 16 bytes are permuted in shared memory by the number of the line (swizzle of 128 bytes; of 64
    /// bytes where a tile has exactly as many along it).
    pub dims: &'a [TensorMapDim],
}

impl TensorMapLayout<'_> {
    /// Bytes of a tile along the first dimension.
    pub(crate) fn line(&self) -> u64 {
        self.dims.first().map_or(0, |dim| u64::from(dim.tile) * self.element.size())
    }

    /// Bytes from the first element to the end of the last one; `None` if they cannot be counted.
    pub(crate) fn extent(&self) -> Option<u64> {
        if self.dims.iter().any(|dim| dim.size == 0) {
            return Some(0);
        }
        let element = self.element.size();
        self.dims.iter().enumerate().try_fold(element, |sum, (at, dim)| {
            let step = if at == 0 { element } else { dim.step };
            sum.checked_add((dim.size - 1).checked_mul(step)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{TensorMapDim, TensorMapElement, TensorMapLayout};

    #[test]
    fn the_extent_ends_with_the_last_element() {
        let extent = |sizes: [u64; 3], steps: [u64; 2]| {
            let steps = [7, steps[0], steps[1]];
            let dims = [0, 1, 2].map(|at| TensorMapDim { size: sizes[at], step: steps[at], tile: 1 });
            TensorMapLayout { element: TensorMapElement::F16, dims: &dims }.extent()
        };
        assert_eq!(extent([8, 3, 2], [32, 112]), Some(112 + 64 + 16));
        assert_eq!(extent([8, 1, 1], [0, 0]), Some(16));
        assert_eq!(extent([8, 0, 1], [32, 0]), Some(0));
        assert_eq!(extent([8, 3, 2], [u64::MAX, 0]), None);
    }
}
