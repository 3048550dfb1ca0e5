//! Launches of `kernels/sort.cu`: stable sorts of rows with the places that the elements had.
//!
//! # Safety
//! All tensors are contiguous: elements of `rows` times `n`, results of `rows` times what is kept of each row. The kernels
//! bound places by the row, since elements may change between two launches.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{Arg, DeviceBuffer, DeviceIndex, LaunchConfig};

use super::{Packed, Text, memory};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::launch::record;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "sort", ptx: include_str!("../../../kernels/sort.ptx") };

const THREADS: u32 = 256;
const DIGITS: usize = 256;
/// Elements of a block that sorts whole rows.
const TILE: i64 = 2048;
/// Threads of a block of a pass.
const PASS_THREADS: u32 = 512;
/// For keys of 32 and of 64 bits: the keys that a thread of a pass has, and the bytes of one with its place.
const PASS_KEYS: [(u32, u32); 2] = [(14, 8), (10, 12)];
/// What a block of a pass has in shared memory besides keys and places: a number for each digit, and a few more.
const PASS_SHARED: u32 = 256 * 8 + 64;
/// Elements that a block counts the digits of.
const COUNTED: i64 = 1 << 15;

/// Rows to be sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) elements: &'a Tensor,
    pub(crate) rows: i64,
    /// Elements of a row.
    pub(crate) n: i64,
    pub(crate) descending: bool,
    /// Whether every NaN is the greatest, also one with a negative sign, which else is the least.
    pub(crate) nan_greatest: bool,
    /// The greatest element, where they are integers that are not negative and it is known: digits above its own are not
    /// looked at.
    pub(crate) greatest: Option<i64>,
}

/// Whether rows of this length are sorted by one block, which can leave out what is not wanted of them.
pub(crate) fn is_short(n: i64) -> bool {
    n <= TILE
}

/// How the kernels call the order of the elements, and whether keys have 64 bits.
fn kind(rows: &Rows<'_>) -> Result<(i32, bool)> {
    let (kind, wide) = kind_of(rows.elements.dtype())?;
    Ok((if rows.nan_greatest { kind | 16 } else { kind }, wide))
}

/// torch has no kernel for floats of 8 bits.
fn not_sorted(dtype: DType) -> TensorError {
    TensorError::NotImplemented { kernel: "sortKeyValueInplace".to_owned(), dtype }
}

fn kind_of(dtype: DType) -> Result<(i32, bool)> {
    Ok(match dtype {
        DType::U8 | DType::Bool => (0, false),
        DType::I8 => (1, false),
        DType::I16 => (2, false),
        DType::I32 => (3, false),
        DType::I64 => (4, true),
        DType::F16 => (5, false),
        DType::BF16 => (6, false),
        DType::F32 => (7, false),
        DType::F64 => (8, true),
        DType::C32 | DType::C64 | DType::C128 => return Err(invalid("Sort does not support complex dtypes on CUDA")),
        DType::F8E4M3FN | DType::F8E5M2 => return Err(not_sorted(dtype).into()),
    })
}

/// Sorts rows of at most [`TILE`] elements; the results have the first `keep` of each.
pub(crate) fn short(rows: &Rows<'_>, values: &Tensor, places: &Tensor, keep: i64) -> Result<()> {
    let (kind, wide) = kind(rows)?;
    let again = move |rows: &Rows<'_>, values: &Tensor, places: &Tensor| short(rows, values, places, keep);
    if is_recorded(rows, (values, places), keep.cast_unsigned(), again)? {
        return Ok(());
    }
    let width = rows.n.unsigned_abs().next_power_of_two().max(2);
    let blocks = rows.rows.unsigned_abs().div_ceil(TILE.unsigned_abs() / width);
    let config = super::row(blocks * u64::from(THREADS), THREADS)?;
    let small = |number: i64| Arg::U32(u32::try_from(number).unwrap_or(0));
    let arguments = [
        memory(rows.elements)?,
        memory(values)?,
        memory(places)?,
        Arg::I64(rows.rows),
        small(rows.n),
        small(width.cast_signed()),
        small(keep),
        Arg::I32(kind),
        Arg::I32(rows.descending.into()),
    ];
    let kernel = if wide { "sort_rows_64" } else { "sort_rows_32" };
    // SAFETY: `rows` times `n` elements, and results of `rows` times `keep`.
    unsafe { super::launch(&TEXT, kernel, device(rows)?, &config, &arguments)? };
    Ok(())
}

/// Writes a sort down where a trace is under way. `keep` tells the sorts of equal rows apart.
fn is_recorded(
    rows: &Rows<'_>,
    (values, places): (&Tensor, &Tensor),
    keep: u64,
    run: impl Fn(&Rows<'_>, &Tensor, &Tensor) -> Result<()> + Send + Sync + 'static,
) -> Result<bool> {
    let Rows { rows: count, n, descending, nan_greatest, greatest, .. } = *rows;
    let order = u64::from(descending) | u64::from(nan_greatest) << 1 | u64::from(greatest.is_some()) << 2;
    let numbers = [count, n, greatest.unwrap_or(0)].map(i64::cast_unsigned);
    let detail = numbers.into_iter().chain([order, keep]).collect();
    record::pure_call("sort", (&[values, places], &[rows.elements]), detail, move |outputs, inputs| {
        let ([values, places], [elements]) = (outputs, inputs) else { return Ok(()) };
        run(&Rows { elements, rows: count, n, descending, nan_greatest, greatest }, values, places)
    })
}

/// Sorts rows of any length, but for lengths that do not fit into 32 bits.
pub(crate) fn long(rows: &Rows<'_>, values: &Tensor, places: &Tensor) -> Result<()> {
    if u32::try_from(rows.n).is_err() {
        return Err(TensorError::TooLarge { sizes: vec![rows.rows, rows.n] }.into());
    }
    if is_recorded(rows, (values, places), u64::MAX, long)? {
        return Ok(());
    }
    passes(rows, &starts(rows)?, values, places)
}

/// Digits of a key, and passes that are made.
fn digits(rows: &Rows<'_>) -> (i64, i64) {
    let digits = i64::try_from(rows.elements.element_size()).unwrap_or(8);
    let bits = rows.greatest.map_or(64, |greatest| 64 - i64::from(greatest.leading_zeros()));
    (digits, digits.min((bits + 7) / 8).max(1))
}

/// Makes the passes. The elements may have changed since the digits were counted.
fn passes(rows: &Rows<'_>, starts: &Tensor, values: &Tensor, places: &Tensor) -> Result<()> {
    let (kind, wide) = kind(rows)?;
    let (passes, taken) = digits(rows);
    let key = if wide { DType::I64 } else { DType::I32 };
    let scratch = |count: i64, dtype: DType| Tensor::uninitialized(&[count], dtype, rows.elements);
    let numel = rows.rows * rows.n;
    // One pass needs nothing between, two need one memory, more need two.
    let between = |needed: bool| if needed { numel } else { 0 };
    let keys = [scratch(between(taken > 1), key)?, scratch(between(taken > 2), key)?];
    let was = [scratch(between(taken > 1), DType::I32)?, scratch(between(taken > 2), DType::I32)?];
    let (each, bytes) = PASS_KEYS[usize::from(wide)];
    let tiles = rows.n.unsigned_abs().div_ceil(u64::from(PASS_THREADS * each));
    let blocks = tiles * rows.rows.unsigned_abs();
    let shared_bytes = PASS_THREADS * each * bytes + PASS_SHARED;
    let config = LaunchConfig { shared_bytes, ..super::row(blocks * u64::from(PASS_THREADS), PASS_THREADS)? };
    // The states of all tiles, and behind them the ticket.
    let words = i64::try_from(blocks).unwrap_or(0) * DIGITS as i64;
    let states = scratch(words + 1, DType::I64)?;
    for pass in 0..taken {
        let Some(buffer) = states.storage().buffer() else { continue };
        buffer.fill(.., 0, None)?;
        // The memory that the pass before has written, if it was not the first one.
        let (from, to) = (usize::from(pass % 2 == 0), usize::from(pass % 2 == 1));
        let work = Pass {
            tensors: [rows.elements, values, places, &keys[from], &was[from], &keys[to], &was[to], starts, &states],
            ticket: states.data_ptr() + words.unsigned_abs() * 8,
            n: rows.n,
            numbers: [
                i32::try_from(tiles).unwrap_or(0),
                small(pass),
                small(passes),
                kind,
                rows.descending.into(),
                small(taken),
            ],
        };
        let packed = work.packed();
        let kernel = if wide { "sort_pass_64" } else { "sort_pass_32" };
        // SAFETY: memory for all elements, their keys and places, and for each tile's states; the tensors live until the
        // work that is queued here is done.
        unsafe { super::launch(&TEXT, kernel, device(rows)?, &config, &[packed.argument()])? };
    }
    Ok(())
}

fn small(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(0)
}

/// `struct Pass` of the source.
struct Pass<'a> {
    tensors: [&'a Tensor; 9],
    ticket: u64,
    n: i64,
    /// Tiles, pass, digits of a key, kind, order, passes.
    numbers: [i32; 6],
}

impl Pass<'_> {
    fn packed(&self) -> Packed {
        let mut packed = Packed::default();
        self.tensors.iter().for_each(|tensor| packed.word(tensor.data_ptr().cast_signed()));
        packed.word(self.ticket.cast_signed());
        packed.word(self.n);
        self.numbers.iter().for_each(|&number| packed.half(number));
        packed
    }
}

/// For each row, pass and digit, how many keys have a lower digit.
fn starts(rows: &Rows<'_>) -> Result<Tensor> {
    let ((kind, wide), (_, passes)) = (kind(rows)?, digits(rows));
    let counts = Tensor::zeros(&[rows.rows * passes * DIGITS as i64], DType::I64, rows.elements)?;
    let parts = (rows.n + COUNTED - 1) / COUNTED;
    let config = super::row((parts * rows.rows).unsigned_abs() * u64::from(THREADS), THREADS)?;
    let arguments = [
        memory(&counts)?,
        memory(rows.elements)?,
        Arg::I64(rows.n),
        Arg::U32(u32::try_from(parts).unwrap_or(0)),
        Arg::U32(u32::try_from(passes).unwrap_or(0)),
        Arg::I32(kind),
        Arg::I32(rows.descending.into()),
    ];
    let kernel = if wide { "count_digits_64" } else { "count_digits_32" };
    // SAFETY: `rows` times `n` elements, and numbers for each digit of each pass of each row.
    unsafe { super::launch(&TEXT, kernel, device(rows)?, &config, &arguments)? };
    let config = LaunchConfig { grid: [u32::try_from(rows.rows * passes).unwrap_or(0), 1, 1], ..config };
    // SAFETY: a block for each pass of each row.
    unsafe { super::launch(&TEXT, "start_digits", device(rows)?, &config, &[memory(&counts)?])? };
    Ok(counts)
}

fn device(rows: &Rows<'_>) -> Result<DeviceIndex> {
    let buffer: Option<&DeviceBuffer> = rows.elements.plain_storage()?.buffer();
    buffer.map(DeviceBuffer::device_index).ok_or_else(|| invalid("elements on no device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every memory is an allocation of the driver, which the simulated device checks the bounds of.
    #[test]
    fn elements_that_change_after_their_digits_are_counted_stay_in_their_rows() -> Result<()> {
        let simulated = testkit::simulated_runtime();
        simulated.runtime().memory().enable_caching(false);
        let (count, n) = (2, 3 * TILE);
        for dtype in [DType::U8, DType::I16, DType::I32, DType::I64] {
            let elements = Tensor::zeros(&[count, n], dtype, "cuda")?;
            let order =
                Rows { elements: &elements, rows: count, n, descending: false, nan_greatest: false, greatest: None };
            let counted = starts(&order)?;
            // All digits but the highest one are the greatest now, of which none was counted.
            elements.fill_(if dtype == DType::U8 { 255 } else { -1 })?;
            let values = Tensor::zeros(&[count, n], dtype, "cuda")?;
            let places = Tensor::zeros(&[count, n], DType::I64, "cuda")?;
            passes(&order, &counted, &values, &places)?;
            assert_eq!(places.to_vec::<i64>()?.len(), 2 * 3 * 2048, "{dtype}");
            // Without a change each element has its place.
            long(&order, &values, &places)?;
            assert_eq!(values.to_bytes()?, elements.to_bytes()?, "{dtype}");
            assert_eq!(places.to_vec::<i64>()?, [(0..n).collect::<Vec<_>>(), (0..n).collect()].concat(), "{dtype}");
        }
        Ok(())
    }
}
