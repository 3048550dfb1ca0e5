//! Frames of Zstandard, as RFC 8878 describes them, without dictionaries. Checksums are not looked at.

use super::bits::Backward;
use super::fse::Table;
use super::huffman::Tree;
use super::{Broken, append, repeat};

/// How a frame begins.
const MAGIC: u32 = 0xFD2F_B528;

/// The most bytes of a block.
const BLOCK_MAX: usize = 128 << 10;

/// How often lengths of literals, distances and lengths of repetitions occur where a block does not say.
const LITERALS: [i32; 36] =
    [4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1];
const DISTANCES: [i32; 29] =
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1];
const REPETITIONS: [i32; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];

/// Extra bits of the codes of lengths, from the first code that has some on; each code begins where the last one ends.
const LITERAL_BITS: [u32; 20] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const REPETITION_BITS: [u32; 21] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// The codes without extra bits, and the shortest repetition.
const PLAIN_LITERALS: usize = 16;
const PLAIN_REPETITIONS: usize = 32;
const REPETITION_MIN: usize = 3;

/// The largest code of a distance that any frame of code has.
const DISTANCE_CODE_MAX: u8 = 31;

/// Unpacks a frame into at most `limit` bytes.
pub(crate) fn zstd(input: &[u8], limit: usize) -> Result<Vec<u8>, Broken> {
    let mut rest = Rest(input);
    if rest.number(4)? != MAGIC {
        return Err(Broken);
    }
    rest.skip_header()?;
    let mut frame = Frame::new(limit)?;
    loop {
        let head = rest.number(3)?;
        let (is_last, kind, size) = (head & 1 == 1, head >> 1 & 3, (head >> 3) as usize);
        match kind {
            0 => append(&mut frame.output, rest.take(size)?, limit)?,
            1 => {
                let byte = rest.take(1)?[0];
                append(&mut frame.output, &vec![byte; size.min(BLOCK_MAX)], limit)?;
            }
            2 => frame.block(rest.take(size)?)?,
            _ => return Err(Broken),
        }
        if is_last {
            return Ok(frame.output);
        }
    }
}

/// Bytes that were not read yet.
#[derive(Clone, Copy)]
struct Rest<'i>(&'i [u8]);

impl<'i> Rest<'i> {
    fn take(&mut self, count: usize) -> Result<&'i [u8], Broken> {
        let (taken, left) = self.0.split_at_checked(count).ok_or(Broken)?;
        self.0 = left;
        Ok(taken)
    }

    /// A number of up to 4 bytes.
    fn number(&mut self, bytes: usize) -> Result<u32, Broken> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    /// Reads over what stands between the magic number and the blocks.
    fn skip_header(&mut self) -> Result<(), Broken> {
        let flags = self.number(1)?;
        let (size, is_whole, dictionary) = (flags >> 6, flags >> 5 & 1 == 1, flags & 3);
        if dictionary != 0 {
            return Err(Broken);
        }
        let size_bytes = match size {
            0 => usize::from(is_whole),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        self.take(usize::from(!is_whole) + size_bytes).map(|_| ())
    }
}

/// What blocks of a frame leave to the next ones.
struct Frame {
    output: Vec<u8>,
    limit: usize,
    tree: Option<Tree>,
    literals: Table,
    distances: Table,
    repetitions: Table,
    /// The last distances, the newest first.
    recent: [usize; 3],
}

impl Frame {
    fn new(limit: usize) -> Result<Self, Broken> {
        Ok(Self {
            output: Vec::new(),
            limit,
            tree: None,
            literals: Table::new(&LITERALS, 6)?,
            distances: Table::new(&DISTANCES, 5)?,
            repetitions: Table::new(&REPETITIONS, 6)?,
            recent: [1, 4, 8],
        })
    }

    fn block(&mut self, block: &[u8]) -> Result<(), Broken> {
        let mut rest = Rest(block);
        let literals = self.read_literals(&mut rest)?;
        let count = match rest.number(1)? as usize {
            count @ 0..128 => count,
            high @ 128..255 => (high - 128) << 8 | rest.number(1)? as usize,
            _ => rest.number(2)? as usize + 0x7F00,
        };
        if count == 0 {
            return append(&mut self.output, &literals, self.limit);
        }
        let modes = rest.number(1)?;
        choose(&mut self.literals, modes >> 6, &mut rest, (&LITERALS, 6), 9)?;
        choose(&mut self.distances, modes >> 4 & 3, &mut rest, (&DISTANCES, 5), 8)?;
        choose(&mut self.repetitions, modes >> 2 & 3, &mut rest, (&REPETITIONS, 6), 9)?;
        self.sequences(&literals, count, rest.0)
    }

    /// The literals of a block.
    fn read_literals(&mut self, rest: &mut Rest<'_>) -> Result<Vec<u8>, Broken> {
        let first = *rest.0.first().ok_or(Broken)?;
        let (kind, format) = (first & 3, first >> 2 & 3);
        if kind < 2 {
            let (bytes, shift) = match format {
                1 => (2, 4),
                3 => (3, 4),
                _ => (1, 3),
            };
            let size = (rest.number(bytes)? >> shift) as usize;
            if size > BLOCK_MAX {
                return Err(Broken);
            }
            return Ok(if kind == 0 { rest.take(size)?.to_vec() } else { vec![rest.take(1)?[0]; size] });
        }
        let (bytes, width) = match format {
            0 | 1 => (3, 10),
            2 => (4, 14),
            _ => (5, 18),
        };
        let head = rest.take(bytes)?.iter().rev().fold(0_u64, |head, &byte| head << 8 | u64::from(byte));
        let field = |shift: u32| usize::try_from(head >> shift & ((1 << width) - 1)).map_err(|_| Broken);
        let (size, packed) = (field(4)?, field(4 + width)?);
        let mut coded = Rest(rest.take(packed)?);
        if kind == 2 {
            let (tree, taken) = Tree::read(coded.0)?;
            coded.take(taken)?;
            self.tree = Some(tree);
        }
        if size > BLOCK_MAX {
            return Err(Broken);
        }
        read_streams(self.tree.as_ref().ok_or(Broken)?, coded, size, format != 0)
    }

    /// Appends literals and repetitions in turn.
    fn sequences(&mut self, literals: &[u8], count: usize, coded: &[u8]) -> Result<(), Broken> {
        let mut bits = Backward::new(coded)?;
        let mut literal_state = self.literals.begin(&mut bits);
        let mut distance_state = self.distances.begin(&mut bits);
        let mut repetition_state = self.repetitions.begin(&mut bits);
        let mut left = Rest(literals);
        for index in 0..count {
            let code = self.distances.symbol(distance_state);
            if code > DISTANCE_CODE_MAX {
                return Err(Broken);
            }
            let value = (1_usize << code) + bits.take(code.into()) as usize;
            let repeated = usize::from(self.repetitions.symbol(repetition_state));
            let repeated = length(repeated, PLAIN_REPETITIONS, &REPETITION_BITS, &mut bits)? + REPETITION_MIN;
            let plain = usize::from(self.literals.symbol(literal_state));
            let plain = length(plain, PLAIN_LITERALS, &LITERAL_BITS, &mut bits)?;
            if index + 1 < count {
                literal_state = self.literals.next(literal_state, &mut bits);
                repetition_state = self.repetitions.next(repetition_state, &mut bits);
                distance_state = self.distances.next(distance_state, &mut bits);
            }
            append(&mut self.output, left.take(plain)?, self.limit)?;
            let distance = self.distance(value, plain == 0)?;
            repeat(&mut self.output, distance, repeated, self.limit)?;
        }
        if bits.left() != 0 {
            return Err(Broken);
        }
        append(&mut self.output, left.0, self.limit)
    }

    /// A distance, which small values name among the last ones.
    fn distance(&mut self, value: usize, follows_nothing: bool) -> Result<usize, Broken> {
        let [first, second, third] = self.recent;
        let distance = match value + usize::from(follows_nothing && value <= 3) {
            _ if value > 3 => value - 3,
            1 => return Ok(first),
            2 => {
                self.recent = [second, first, third];
                return Ok(second);
            }
            3 => third,
            _ => first.checked_sub(1).ok_or(Broken)?,
        };
        self.recent = [distance, first, second];
        Ok(distance)
    }
}

/// Sets a table as a block says: as usual, of one symbol, as described, or as before.
fn choose(
    table: &mut Table,
    mode: u32,
    rest: &mut Rest<'_>,
    (usual, log): (&[i32], u32),
    log_max: u32,
) -> Result<(), Broken> {
    *table = match mode {
        0 => Table::new(usual, log)?,
        1 => Table::of_one(rest.take(1)?[0]),
        2 => {
            let (made, taken) = Table::read(rest.0, log_max, usual.len().max(usize::from(DISTANCE_CODE_MAX) + 1))?;
            rest.take(taken)?;
            made
        }
        _ => return Ok(()),
    };
    Ok(())
}

/// Literals in one stream or in four, of which the first three have the same size.
fn read_streams(tree: &Tree, mut coded: Rest<'_>, size: usize, four: bool) -> Result<Vec<u8>, Broken> {
    let mut literals = Vec::with_capacity(size);
    if !four {
        tree.stream(coded.0, size, &mut literals)?;
        return Ok(literals);
    }
    let sizes = [coded.number(2)?, coded.number(2)?, coded.number(2)?];
    let each = size.div_ceil(4);
    for bytes in sizes {
        tree.stream(coded.take(bytes as usize)?, each, &mut literals)?;
    }
    let last = size.checked_sub(literals.len()).ok_or(Broken)?;
    tree.stream(coded.0, last, &mut literals)?;
    Ok(literals)
}

/// The length that a code and its extra bits stand for.
fn length(code: usize, plain: usize, extra: &[u32], bits: &mut Backward<'_>) -> Result<usize, Broken> {
    let Some(above) = code.checked_sub(plain) else { return Ok(code) };
    let width = *extra.get(above).ok_or(Broken)?;
    let begin: usize = extra[..above].iter().map(|&width| 1_usize << width).sum();
    Ok(plain + begin + bits.take(width) as usize)
}
