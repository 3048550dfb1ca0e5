//! How a kernel goes over its operands: pieces whose offsets have 32 bits, accesses of several elements, and the parameters
//! as the kernel reads them.

use smallvec::SmallVec;

use crate::base::shape::Dims;
use crate::iterate::Iteration;

/// The most elements and bytes that one launch counts.
const MOST: i64 = i32::MAX as i64;

/// A part of an iteration that one launch goes over: where each operand begins, in bytes from its first element on.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) iteration: Iteration,
    pub(super) begins: SmallVec<[i64; 4]>,
}

/// The parts of an iteration whose counts and offsets have 31 bits, in order.
pub(super) fn pieces(iteration: Iteration) -> Vec<Piece> {
    split(iteration, MOST)
}

/// Parts of at most `most` elements, whose offsets are at most `most` bytes. The dimension that reaches farthest is halved.
fn split(iteration: Iteration, most: i64) -> Vec<Piece> {
    let begins = SmallVec::from_elem(0, iteration.strides.len());
    let mut open = vec![Piece { iteration, begins }];
    let mut done = Vec::new();
    while let Some(piece) = open.pop() {
        if piece.iteration.numel <= most && piece.reach() <= most {
            done.push(piece);
            continue;
        }
        let (low, high) = piece.halves();
        open.push(high);
        open.push(low);
    }
    done
}

impl Piece {
    /// The farthest byte offset of an operand's element.
    fn reach(&self) -> i64 {
        let sizes = &self.iteration.sizes;
        let of = |strides: &Dims| strides.iter().zip(sizes).map(|(stride, size)| stride * (size - 1).max(0)).sum();
        self.iteration.strides.iter().map(of).max().unwrap_or(0)
    }

    fn halves(self) -> (Self, Self) {
        let Self { iteration, begins } = self;
        let reach = |dim: usize| {
            let farthest = iteration.strides.iter().map(|strides| strides[dim]).max().unwrap_or(0);
            ((iteration.sizes[dim] - 1) * farthest, iteration.sizes[dim])
        };
        let dims = 0..iteration.sizes.len();
        let dim = dims.filter(|&dim| iteration.sizes[dim] > 1).max_by_key(|&dim| reach(dim)).unwrap_or(0);
        let half = iteration.sizes[dim] / 2;
        let with = |size: i64| {
            let mut part = iteration.clone();
            part.sizes[dim] = size;
            part.numel = part.sizes.iter().product();
            part
        };
        let (low, high) = (with(half), with(iteration.sizes[dim] - half));
        let later = begins.iter().zip(&iteration.strides).map(|(begin, strides)| begin + half * strides[dim]).collect();
        (Self { iteration: low, begins }, Self { iteration: high, begins: later })
    }
}

/// How many elements an access to memory has: as many as the addresses of all operands are aligned for. On devices of
/// compute capability 9.0 and later elements of at most two bytes go by eight, where that is 16 bytes at most.
pub(super) fn pack(addresses: impl Iterator<Item = u64>, width: u64, capability: (i32, i32)) -> u32 {
    let all = addresses.fold(0, |all, address| all | address);
    let widest = if capability.0 >= 9 && width <= 2 { 8 } else { 4 };
    [8, 4, 2].into_iter().find(|&pack| pack <= widest && all.is_multiple_of(width * u64::from(pack))).unwrap_or(1)
}

/// The divisor of a dimension as the kernel has it: a factor and a shift.
fn division(size: u32) -> (u32, u32) {
    let shift = 32 - size.saturating_sub(1).leading_zeros();
    let size = u64::from(size.max(1));
    let factor = ((1_u64 << 32) * ((1_u64 << shift) - size)) / size + 1;
    (u32::try_from(factor).unwrap_or(u32::MAX), shift)
}

/// What the kernel's struct holds.
pub(super) struct Params<'a> {
    /// Addresses, outputs first.
    pub(super) data: &'a [u64],
    /// By input: dtype and bytes of an element.
    pub(super) inputs: &'a [(u32, u32)],
    pub(super) iteration: &'a Iteration,
    /// Dimensions that the struct has room for.
    pub(super) dims: usize,
}

impl Params<'_> {
    /// The bytes of the struct.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let sizes = &self.iteration.sizes;
        let room = |at: usize| sizes.get(at).map_or(1, |&size| low(size));
        let mut bytes = Vec::with_capacity(8 * self.data.len() + 4 * self.dims * (self.data.len() + 3) + 64);
        self.data.iter().for_each(|address| bytes.extend_from_slice(&address.to_ne_bytes()));
        let mut word = |word: u32| bytes.extend_from_slice(&word.to_ne_bytes());
        word(low(self.iteration.numel));
        word(u32::try_from(sizes.len()).unwrap_or(0));
        self.inputs.iter().for_each(|(dtype, _)| word(*dtype));
        self.inputs.iter().for_each(|(_, width)| word(*width));
        (0..self.dims).for_each(|dim| word(room(dim)));
        (0..self.dims).for_each(|dim| word(division(room(dim)).0));
        (0..self.dims).for_each(|dim| word(division(room(dim)).1));
        for dim in 0..self.dims {
            for strides in &self.iteration.strides {
                word(strides.get(dim).map_or(0, |&stride| low(stride)));
            }
        }
        // The struct is aligned as its addresses are.
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

/// A number of a piece, which has 31 bits.
fn low(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        for size in [1_u32, 2, 3, 5, 7, 31, 32, 33, 641, 65_535, 65_536, 1 << 30, i32::MAX.unsigned_abs()] {
            let (factor, shift) = division(size);
            for number in [0, 1, size - 1, size, size + 1, 2 * (size / 2), 123_456_789, i32::MAX.unsigned_abs()] {
                let high = u32::try_from((u64::from(number) * u64::from(factor)) >> 32).expect("32 bits");
                assert_eq!((high + number) >> shift, number / size, "{number} / {size}");
            }
        }
    }

    fn places(piece: &Piece, operand: usize) -> Vec<i64> {
        let (sizes, strides) = (&piece.iteration.sizes, &piece.iteration.strides[operand]);
        let of = |mut at: i64| {
            let step = |(size, stride): (&i64, &i64)| {
                let rest = at % size;
                at /= size;
                rest * stride
            };
            piece.begins[operand] + sizes.iter().zip(strides).map(step).sum::<i64>()
        };
        (0..piece.iteration.numel).map(of).collect()
    }

    #[test]
    fn pieces_cover_each_element_once_within_the_limit() {
        let iteration = Iteration {
            numel: 7 * 5 * 6,
            sizes: Dims::from_slice(&[7, 5, 6]),
            strides: [[4, 28, 140], [0, 8, 400]].iter().map(|strides| Dims::from_slice(strides)).collect(),
        };
        let whole = Piece { iteration: iteration.clone(), begins: SmallVec::from_elem(0, 2) };
        let parts = split(iteration, 50);
        assert!(parts.iter().all(|part| part.iteration.numel <= 50 && part.reach() <= 50));
        let all = |pieces: &[Piece]| {
            let pairs = pieces.iter().flat_map(|piece| places(piece, 0).into_iter().zip(places(piece, 1)));
            let mut pairs: Vec<(i64, i64)> = pairs.collect();
            pairs.sort_unstable();
            pairs
        };
        assert_eq!(all(&parts), all(std::slice::from_ref(&whole)));
        assert!(parts.len() > 4);
        assert_eq!(pieces(whole.iteration).len(), 1);
    }

    #[test]
    fn accesses_are_as_wide_as_addresses_allow() {
        let of = |addresses: &[u64], width| pack(addresses.iter().copied(), width, (8, 0));
        assert_eq!((of(&[512, 1024], 4), of(&[512, 8], 4), of(&[512, 4], 4)), (4, 2, 1));
        assert_eq!(of(&[512], 2), 4);
        assert_eq!(pack([512_u64].into_iter(), 2, (9, 0)), 8);
        assert_eq!(pack([512_u64].into_iter(), 4, (9, 0)), 4);
        assert_eq!(of(&[16], 16), 1);
    }
}
