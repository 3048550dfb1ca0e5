//! The kernels of `random.cu`: fills, dropout, sorting and what draws categories.
//!
//! # Safety
//! Each kernel keeps to the elements of the views that it is given, and to counts that are computed here of the same
//! tensors. Tensors that are dense are checked to be.

mod order;

pub(crate) use order::{Part, Schedule, whole};

use c10_core::{Arg, DeviceBuffer, DeviceIndex, LaunchConfig, Runtime};
use smallvec::SmallVec;

use super::{Text, launch};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::shape::Dims;
use crate::report::{self, Reporter};
use crate::tensor::Tensor;
use order::BLOCK;

static TEXT: Text = Text { name: "random", ptx: include_str!("../../../../kernels/random.ptx") };

/// What a launch draws: blocks from `offset / 4` on, of a seed. While work is captured, both are in device memory, and
/// the offset counts from the one there.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) seed: u64,
    pub(crate) offset: u64,
    pub(crate) place: Option<DeviceBuffer>,
}

/// Most dimensions that a view of a kernel has.
const RANK: usize = 25;

/// Blocks along the second axis of a grid.
const GRID_Y: u32 = 65_535;

/// A distribution of numbers that are computed of floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floats {
    /// The kernels for floats of 32 bits, which are rounded where the tensor's dtype needs it, and of 64 bits.
    pub(crate) single: &'static str,
    pub(crate) double: &'static str,
    /// The numbers of the distribution, as the kernel has them.
    pub(crate) numbers: [f64; 3],
}

/// The dtype as the kernels number it.
const fn number_of(dtype: DType) -> u32 {
    dtype.to_real() as u32
}

/// Bytes that stores of groups begin at a multiple of.
const ALIGNMENT: u64 = 16;

/// How many dense neighbours of a dtype a thread of a kernel stores at once. The kernel has the same list.
fn group_of(kernel: &str, dtype: DType) -> u32 {
    match (dtype, kernel) {
        (DType::F16 | DType::BF16, "uniform_single" | "normal_single") | (DType::I32, "integers") => 4,
        (DType::F64, "uniform_double" | "normal_double") | (DType::I64, "wide_integers") => 2,
        (DType::F32, _) if kernel.ends_with("_single") => 4,
        _ => 1,
    }
}

/// A fill of a part of a tensor: what every kernel takes first, and its launch.
struct Fill {
    /// The state, the counts and the dtype; the last word fills up to a multiple of eight bytes.
    work: [u32; 10],
    view: [u32; 1 + 2 * RANK],
    config: LaunchConfig,
}

impl Fill {
    fn new(
        kernel: &str,
        buffer: &DeviceBuffer,
        part: &Part,
        dtype: DType,
        drawn: &Drawn,
        schedule: Schedule,
    ) -> Result<Self> {
        let [seed, offset] = [drawn.seed, drawn.offset].map(words);
        let n = u32::try_from(part.numel).unwrap_or(u32::MAX);
        let is_aligned = (buffer.address() + part.offset as u64).is_multiple_of(ALIGNMENT);
        let in_groups = is_aligned && part.is_dense(dtype.itemsize());
        let group = if in_groups { group_of(kernel, dtype) } else { 1 };
        let Schedule { threads, steps } = schedule;
        let work = [seed[0], seed[1], offset[0], offset[1], n, threads, steps, number_of(dtype), group, 0];
        let config = grid(threads.div_ceil(group), steps);
        let mut view = [0; 1 + 2 * RANK];
        if !part.is_dense(dtype.itemsize()) {
            check_rank(part.sizes.len())?;
            view[0] = u32::try_from(part.sizes.len()).unwrap_or(0);
            let low = |number: &i64| u32::try_from(*number).unwrap_or(u32::MAX);
            for (to, size) in view[1..].iter_mut().zip(&part.sizes) {
                *to = low(size);
            }
            for (to, stride) in view[1 + RANK..].iter_mut().zip(&part.strides) {
                *to = low(stride);
            }
        }
        Ok(Self { work, view, config })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the words are the halves of the number")]
const fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

fn check_rank(rank: usize) -> Result<()> {
    if rank <= RANK { Ok(()) } else { Err(invalid(format!("tensor has too many (>{RANK}) dims"))) }
}

/// So many threads along the first axis. Each takes a few of many steps, so that what it does before the first one counts
/// less.
fn grid(threads: u32, steps: u32) -> LaunchConfig {
    let of_thread = (steps / 16).clamp(1, 8);
    let blocks = [threads.div_ceil(BLOCK), steps.div_ceil(of_thread).min(GRID_Y), 1];
    LaunchConfig { grid: blocks, block: [BLOCK, 1, 1], shared_bytes: 0 }
}

/// The address of the generator's place, or null.
fn place(drawn: &Drawn) -> Arg<'_> {
    drawn.place.as_ref().map_or(Arg::U64(0), Arg::from)
}

fn device(tensor: &Tensor) -> Result<(&DeviceBuffer, DeviceIndex)> {
    let buffer = tensor.plain_storage()?.buffer().ok_or_else(|| invalid("the tensor is not on a CUDA device"))?;
    Ok((buffer, buffer.device_index()))
}

/// All elements of a tensor whose elements lie one after another, in whatever order.
fn dense(tensor: &Tensor) -> Result<Arg<'_>> {
    let is_dense = crate::base::shape::is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    if !is_dense {
        return Err(invalid("the tensor's elements do not lie one after another"));
    }
    view(tensor)
}

/// The bytes from the first element of a tensor to the end of the last one.
fn view(tensor: &Tensor) -> Result<Arg<'_>> {
    let (buffer, _) = device(tensor)?;
    Ok(Arg::range(buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent()))
}

/// Fills a part of a tensor from a distribution of floats.
pub(crate) fn floats(
    tensor: &Tensor,
    part: &Part,
    drawn: &Drawn,
    schedule: Schedule,
    distribution: &Floats,
) -> Result<()> {
    let (buffer, index) = device(tensor)?;
    let dtype = tensor.dtype().to_real();
    let kernel = if dtype == DType::F64 { distribution.double } else { distribution.single };
    let fill = Fill::new(kernel, buffer, part, dtype, drawn, schedule)?;
    let range = part.offset..part.offset + part.extent(dtype.itemsize());
    let arguments = [
        Arg::range(buffer, range),
        place(drawn),
        (&fill.work).into(),
        (&fill.view).into(),
        (&distribution.numbers).into(),
    ];
    // SAFETY: the kernel writes the elements of the view, which lie in the range. Their dtype is one that it stores: the
    // caller has checked it against the distribution.
    unsafe { launch(&TEXT, kernel, index, &fill.config, &arguments)? };
    Ok(())
}

/// Fills a part of a tensor with integers from `base` on, fewer than `range` above it; 0 stands for 2^64. Wide ones are
/// drawn of 64 bits each.
pub(crate) fn integers(
    tensor: &Tensor,
    part: &Part,
    drawn: &Drawn,
    schedule: Schedule,
    (is_wide, range, base): (bool, u64, i64),
) -> Result<()> {
    let (buffer, index) = device(tensor)?;
    let kernel = if is_wide { "wide_integers" } else { "integers" };
    let fill = Fill::new(kernel, buffer, part, tensor.dtype(), drawn, schedule)?;
    let bytes = part.offset..part.offset + part.extent(tensor.element_size());
    let arguments =
        [Arg::range(buffer, bytes), place(drawn), (&fill.work).into(), (&fill.view).into(), range.into(), base.into()];
    // SAFETY: the kernel writes the elements of the view, which lie in the range, in their dtype.
    unsafe { launch(&TEXT, kernel, index, &fill.config, &arguments)? };
    Ok(())
}

/// A view with 64-bit places: sizes and byte strides, the fastest dimension first.
pub(crate) struct WideView([u64; 1 + 2 * RANK]);

impl WideView {
    pub(crate) fn new(sizes: &Dims, strides: &Dims) -> Result<Self> {
        check_rank(sizes.len())?;
        let mut view = [0; 1 + 2 * RANK];
        view[0] = sizes.len() as u64;
        for dim in 0..sizes.len() {
            view[1 + dim] = sizes[dim].unsigned_abs();
            view[1 + RANK + dim] = strides[dim].unsigned_abs();
        }
        Ok(Self(view))
    }
}

/// Draws each element as one with its own probability. Both views have the tensors' sizes in one order of dimensions.
pub(crate) fn bernoulli_of(to: (&Tensor, &WideView), p: (&Tensor, &WideView), drawn: &Drawn) -> Result<()> {
    let (_, index) = device(to.0)?;
    let n = to.0.numel().unsigned_abs();
    let blocks = u32::try_from(n.div_ceil(4 * 512)).map_err(|_| invalid("the tensor is too large"))?;
    let arguments = [
        view(to.0)?,
        view(p.0)?,
        place(drawn),
        drawn.seed.into(),
        drawn.offset.into(),
        n.into(),
        number_of(to.0.dtype()).into(),
        number_of(p.0.dtype()).into(),
        (&to.1.0).into(),
        (&p.1.0).into(),
        (Reporter::Bernoulli as u32).into(),
        Arg::U64(Runtime::with_current(|runtime| report::slot(runtime, index))?),
    ];
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [512, 1, 1], shared_bytes: 0 };
    // SAFETY: the kernel reads and writes the elements of the two views, which are those of the tensors. The slot of
    // reports lives as long as the runtime.
    unsafe { launch(&TEXT, "bernoulli_of", index, &config, &arguments)? };
    Ok(())
}

/// The tensors of a dropout, and what is kept.
#[derive(Debug)]
pub(crate) struct Dropout<'a> {
    pub(crate) input: &'a Tensor,
    pub(crate) output: &'a Tensor,
    pub(crate) mask: &'a Tensor,
    pub(crate) keep: f64,
    pub(crate) scale: f64,
}

impl Dropout<'_> {
    /// How many words keep their element: those whose number in (0, 1] is below what is kept. The numbers are floats of 32
    /// bits and rise with the words, so that the first word that drops its element is near that share of all words.
    #[expect(clippy::cast_possible_truncation, reason = "words are rounded to floats, as their numbers are")]
    #[expect(clippy::cast_precision_loss, reason = "words are rounded to floats, as their numbers are")]
    #[expect(clippy::cast_sign_loss, reason = "what is kept is not negative")]
    fn words_below(&self) -> u32 {
        const WORDS: f64 = (1_u64 << 32) as f64;
        // Numbers and share are rounded by less than half of it.
        const WINDOW: u64 = 1024;
        let is_double = self.input.dtype() == DType::F64;
        let keep = if is_double { self.keep } else { f64::from(self.keep as f32) };
        let number = |word: u64| f64::from((word as u32 as f32) * (1.0 / WORDS as f32) + (0.5 / WORDS) as f32);
        let near = (keep * WORDS) as u64;
        let (mut low, mut high) = (near.saturating_sub(WINDOW), (near + WINDOW).min(u64::from(u32::MAX)));
        while low < high {
            let middle = u64::midpoint(low, high);
            if number(middle) < keep { low = middle + 1 } else { high = middle }
        }
        low as u32
    }
}

/// Drops elements of dense tensors of one layout, in groups.
pub(crate) fn dropout_groups(dropout: &Dropout<'_>, group: u32, drawn: &Drawn, threads: u32) -> Result<()> {
    let (_, index) = device(dropout.input)?;
    let n = dropout.input.numel().unsigned_abs();
    let same = |tensor: &Tensor| tensor.strides() == dropout.input.strides() && tensor.sizes() == dropout.input.sizes();
    if !same(dropout.output) || !same(dropout.mask) {
        return Err(invalid("the tensors have different layouts"));
    }
    // One step for each thread has the most loads under way.
    let steps = n.div_ceil(u64::from(threads) * u64::from(group));
    let steps = u32::try_from(steps).unwrap_or(GRID_Y).min(GRID_Y);
    let config = LaunchConfig { grid: [threads / BLOCK, steps, 1], block: [BLOCK, 1, 1], shared_bytes: 0 };
    let dtype = dropout.input.dtype();
    let all = [dropout.input, dropout.output, dropout.mask];
    let is_aligned = all.iter().all(|tensor| tensor.data_ptr().is_multiple_of(ALIGNMENT));
    let is_whole = is_aligned && u64::from(group) * dtype.itemsize() as u64 == ALIGNMENT;
    let kernel = match dtype {
        _ if !is_whole => "dropout_groups",
        DType::F16 => "dropout_half",
        DType::BF16 => "dropout_bfloat16",
        DType::F32 => "dropout_float",
        _ => "dropout_double",
    };
    let mut arguments: SmallVec<[Arg<'_>; 12]> = SmallVec::new();
    arguments.extend([dense(dropout.output)?, dense(dropout.mask)?, dense(dropout.input)?]);
    arguments.extend([place(drawn), drawn.seed.into(), drawn.offset.into(), n.into(), threads.into()]);
    if !is_whole {
        arguments.extend([group.into(), number_of(dtype).into()]);
    }
    arguments.push(dropout.words_below().into());
    #[expect(clippy::cast_possible_truncation, reason = "the scale is a float of 32 bits, unless the dtype is wider")]
    let narrow = dropout.scale as f32;
    let is_wide = !is_whole || dtype == DType::F64;
    arguments.push(if is_wide { dropout.scale.into() } else { narrow.into() });
    // SAFETY: the kernels go over `n` elements one after another, of three dense tensors that have as many. The group
    // divides `n`: the caller has seen to it. Groups of 16 bytes begin at multiples of as many.
    unsafe { launch(&TEXT, kernel, index, &config, &arguments)? };
    Ok(())
}

/// Drops elements one by one, in row-major order.
pub(crate) fn dropout_single(dropout: &Dropout<'_>, drawn: &Drawn, schedule: Schedule) -> Result<()> {
    let (_, index) = device(dropout.input)?;
    let logical = |tensor: &Tensor| {
        let size = i64::try_from(tensor.element_size()).unwrap_or(1);
        let sizes: Dims = tensor.sizes().iter().rev().copied().collect();
        let strides: Dims = tensor.strides().iter().rev().map(|stride| stride * size).collect();
        WideView::new(&sizes, &strides)
    };
    let views = [logical(dropout.output)?, logical(dropout.mask)?, logical(dropout.input)?];
    let arguments = [
        view(dropout.output)?,
        view(dropout.mask)?,
        view(dropout.input)?,
        place(drawn),
        drawn.seed.into(),
        drawn.offset.into(),
        dropout.input.numel().unsigned_abs().into(),
        schedule.threads.into(),
        number_of(dropout.input.dtype()).into(),
        dropout.words_below().into(),
        dropout.scale.into(),
        (&views[0].0).into(),
        (&views[1].0).into(),
        (&views[2].0).into(),
    ];
    // SAFETY: the kernel goes over the elements of three views of the same sizes, which are those of the tensors.
    unsafe { launch(&TEXT, "dropout_single", index, &grid(schedule.threads, schedule.steps), &arguments)? };
    Ok(())
}

/// Writes a seed and an offset into the 16 bytes that captured work reads.
pub(crate) fn stand_at(place: &DeviceBuffer, seed: u64, offset: u64) -> c10_core::Result<()> {
    let arguments = [Arg::range(place, 0..16), seed.into(), offset.into()];
    // SAFETY: the kernel writes the 16 bytes.
    unsafe { launch(&TEXT, "stand_at", place.device_index(), &LaunchConfig::default(), &arguments) }
}

/// Keys and the numbers of the elements that they belong to, in an order.
#[derive(Debug)]
pub(crate) struct Sorted {
    pub(crate) keys: Tensor,
    pub(crate) numbers: Tensor,
}

/// Elements of a tile of the sort.
const TILE: u32 = 8192;

/// Sorts the elements by `bits` low bits of their keys, which are 32 or 64 bits wide, from the lowest on; equals stay in
/// their order. Of `flip` each bit turns the order of that bit round. `numbers` of `None` stand for the places.
pub(crate) fn sort(keys: &Tensor, numbers: Option<&Tensor>, bits: u32, flip: u64) -> Result<Sorted> {
    let (_, index) = device(keys)?;
    let n = u32::try_from(keys.numel()).map_err(|_| invalid("there are too many keys"))?;
    let is_wide = keys.element_size() == 8;
    let tiles = n.div_ceil(TILE);
    let length = tiles * 256;
    let counts = Tensor::uninitialized(&[i64::from(length)], DType::I32, keys)?;
    let like = |dtype| Tensor::uninitialized(&[i64::from(n)], dtype, keys);
    let mut sorted = Sorted { keys: keys.clone(), numbers: numbers.cloned().map_or_else(|| like(DType::I32), Ok)? };
    let mut has_numbers = numbers.is_some();
    let flip_of = || if is_wide { Arg::U64(flip) } else { Arg::U32(words(flip)[0]) };
    let config = LaunchConfig { grid: [tiles, 1, 1], block: [256, 1, 1], shared_bytes: 0 };
    for shift in (0..bits).step_by(8) {
        let mask = (1_u32 << (bits - shift).min(8)) - 1;
        let count =
            [dense(&sorted.keys)?, n.into(), flip_of(), shift.into(), mask.into(), dense(&counts)?, tiles.into()];
        let kernel = if is_wide { "sort_count_64" } else { "sort_count_32" };
        // SAFETY: the kernel reads `n` keys, which the tensor has, and writes 256 counts for each tile.
        unsafe { launch(&TEXT, kernel, index, &config, &count)? };
        let one = LaunchConfig { grid: [1; 3], block: [1024, 1, 1], shared_bytes: 0 };
        // SAFETY: the kernel adds up `length` counts, which the tensor has.
        unsafe { launch(&TEXT, "sort_places", index, &one, &[dense(&counts)?, length.into()])? };
        let next = Sorted { keys: like(keys.dtype())?, numbers: like(DType::I32)? };
        let moved = [
            dense(&sorted.keys)?,
            if has_numbers { dense(&sorted.numbers)? } else { Arg::U64(0) },
            dense(&next.keys)?,
            dense(&next.numbers)?,
            n.into(),
            flip_of(),
            shift.into(),
            mask.into(),
            dense(&counts)?,
            tiles.into(),
        ];
        let kernel = if is_wide { "sort_move_64" } else { "sort_move_32" };
        // SAFETY: the kernel moves `n` keys and numbers to other tensors of as many; the places are the sums of the
        // digits' counts, so that each lies below `n`.
        unsafe { launch(&TEXT, kernel, index, &config, &moved)? };
        (sorted, has_numbers) = (next, true);
    }
    Ok(sorted)
}

/// Shuffles runs of keys that agree in the low `bits` bits, and writes the numbers of all elements.
pub(crate) fn permute(sorted: &Sorted, to: &Tensor, bits: u32, drawn: &Drawn) -> Result<()> {
    let (_, index) = device(to)?;
    let n = u32::try_from(to.numel()).map_err(|_| invalid("there are too many keys"))?;
    let is_wide = sorted.keys.element_size() == 8;
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let arguments = [
        dense(&sorted.keys)?,
        dense(&sorted.numbers)?,
        dense(to)?,
        n.into(),
        if is_wide { Arg::U64(mask) } else { Arg::U32(words(mask)[0]) },
        place(drawn),
        drawn.seed.into(),
        drawn.offset.into(),
    ];
    let kernel = if is_wide { "permute_64" } else { "permute_32" };
    // SAFETY: the kernel goes over `n` keys, numbers and results, which the tensors have; a thread changes the numbers of
    // its own run only.
    unsafe { launch(&TEXT, kernel, index, &LaunchConfig::linear(n, 256), &arguments)? };
    Ok(())
}

/// Rows of probabilities, one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) p: &'a Tensor,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
}

impl Rows<'_> {
    fn ty(&self) -> u32 {
        number_of(self.p.dtype())
    }

    fn config(&self) -> LaunchConfig {
        LaunchConfig { grid: [self.rows.clamp(1, 4096), 1, 1], block: [256, 1, 1], shared_bytes: 0 }
    }
}

/// Reports a number that is no probability, and a row of zeros.
pub(crate) fn check_rows(rows: &Rows<'_>) -> Result<()> {
    let (_, index) = device(rows.p)?;
    let slot = Runtime::with_current(|runtime| report::slot(runtime, index))?;
    let operation = Reporter::Multinomial as u32;
    let arguments =
        [dense(rows.p)?, rows.rows.into(), rows.columns.into(), rows.ty().into(), operation.into(), Arg::U64(slot)];
    // SAFETY: the kernel reads as many numbers as the rows have. The slot of reports lives as long as the runtime.
    unsafe { launch(&TEXT, "check_rows", index, &rows.config(), &arguments)? };
    Ok(())
}

/// The place of the largest quotient of each row.
pub(crate) fn largest_of_rows(rows: &Rows<'_>, q: &Tensor, to: &Tensor) -> Result<()> {
    let (_, index) = device(rows.p)?;
    let arguments = [dense(rows.p)?, dense(q)?, dense(to)?, rows.rows.into(), rows.columns.into(), rows.ty().into()];
    // SAFETY: the kernel reads the numbers of the rows from two tensors that have them, and writes a number for each row.
    unsafe { launch(&TEXT, "largest_of_rows", index, &rows.config(), &arguments)? };
    Ok(())
}

/// The places of the largest quotients of each row, from the largest on.
pub(crate) fn largest_few(rows: &Rows<'_>, q: &Tensor, to: &Tensor, samples: u32) -> Result<()> {
    let (_, index) = device(rows.p)?;
    let n = u32::try_from(rows.p.numel()).map_err(|_| invalid("there are too many probabilities"))?;
    let keys = Tensor::uninitialized(&[i64::from(n)], DType::I64, rows.p)?;
    let cover = LaunchConfig::linear(n, 256);
    let arguments = [dense(rows.p)?, dense(q)?, dense(&keys)?, n.into(), rows.ty().into()];
    // SAFETY: the kernel reads `n` numbers of two tensors that have them, and writes as many keys.
    unsafe { launch(&TEXT, "quotient_keys", index, &cover, &arguments)? };
    let by_quotient = sort(&keys, None, 64, 0)?;
    let keys = Tensor::uninitialized(&[i64::from(n)], DType::I32, rows.p)?;
    let arguments = [dense(&by_quotient.numbers)?, dense(&keys)?, n.into(), rows.columns.into()];
    // SAFETY: the kernel reads `n` numbers and writes as many keys.
    unsafe { launch(&TEXT, "row_keys", index, &cover, &arguments)? };
    let by_row = sort(&keys, Some(&by_quotient.numbers), 32 - (rows.rows - 1).leading_zeros(), 0)?;
    let total = u32::try_from(to.numel()).map_err(|_| invalid("there are too many samples"))?;
    let arguments = [dense(&by_row.numbers)?, dense(to)?, rows.rows.into(), rows.columns.into(), samples.into()];
    // SAFETY: the kernel reads the first numbers of each row, of which there are no fewer, and writes as many results as
    // the tensor has.
    unsafe { launch(&TEXT, "first_of_rows", index, &LaunchConfig::linear(total, 256), &arguments)? };
    Ok(())
}

/// Threads of a block that draws categories.
const SAMPLERS: u32 = 128;

/// The subsequences of rows that are drawn from with replacement: samples along the first axis, rows along the second.
pub(crate) fn sample_grid(rows: u32, samples: u32) -> [u32; 2] {
    [samples.div_ceil(SAMPLERS), rows.min(GRID_Y)]
}

/// Draws categories of each row with replacement.
pub(crate) fn sample_rows(rows: &Rows<'_>, to: &Tensor, samples: u32, drawn: &Drawn) -> Result<()> {
    let (_, index) = device(rows.p)?;
    let sums = Tensor::uninitialized(&[rows.p.numel()], DType::F64, rows.p)?;
    let arguments = [dense(rows.p)?, dense(&sums)?, rows.rows.into(), rows.columns.into(), rows.ty().into()];
    // SAFETY: the kernel reads the numbers of the rows and writes as many sums.
    unsafe { launch(&TEXT, "add_up_rows", index, &rows.config(), &arguments)? };
    let arguments = [
        dense(&sums)?,
        dense(rows.p)?,
        dense(to)?,
        rows.rows.into(),
        rows.columns.into(),
        samples.into(),
        rows.ty().into(),
        place(drawn),
        drawn.seed.into(),
        drawn.offset.into(),
    ];
    let [x, y] = sample_grid(rows.rows, samples);
    let config = LaunchConfig { grid: [x, y, 1], block: [SAMPLERS, 1, 1], shared_bytes: 0 };
    // SAFETY: the kernel reads the sums and numbers of the rows and writes `samples` results for each row, which the
    // tensor has.
    unsafe { launch(&TEXT, "sample_rows", index, &config, &arguments)? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "words and shares are rounded to floats, as in the kernel")]
    #[expect(clippy::cast_precision_loss, reason = "words and shares are rounded to floats, as in the kernel")]
    fn words_are_kept_by_their_numbers() {
        let number = |word: u32| (word as f32).mul_add((-32_f32).exp2(), (-33_f32).exp2());
        for dtype in [DType::F32, DType::F64] {
            let tensor = Tensor::zeros(&[1], dtype, "cpu").expect("it succeeds");
            for keep in [0.0, 1e-12, 1e-9, 0.1, 0.25, 0.5, 0.9, 1.0 - 0.1, 0.999_999_94, 1.0 - 1e-9, 1.0] {
                let (input, output, mask) = (&tensor, &tensor, &tensor);
                let below = Dropout { input, output, mask, keep, scale: 1.0 }.words_below();
                let is_kept = |word: u32| match dtype {
                    DType::F64 => f64::from(number(word)) < keep,
                    _ => number(word) < keep as f32,
                };
                assert!(below == 0 || is_kept(below - 1), "{keep}: {below}");
                assert!(!is_kept(below), "{keep}: {below}");
            }
        }
    }

    const NORMAL: Floats = Floats { single: "normal_single", double: "normal_double", numbers: [0.5, 2.0, 0.0] };

    fn filled(dtype: DType, n: i64, first: i64, schedule: Schedule) -> Vec<u8> {
        let whole = Tensor::zeros(&[n + first], dtype, "cuda").expect("it succeeds");
        let tensor = whole.narrow(0, first, n).expect("it succeeds");
        let drawn = Drawn { seed: 3, offset: 1 << 34, place: None };
        floats(&tensor, &super::whole(&tensor), &drawn, schedule, &NORMAL).expect("it succeeds");
        tensor.to_bytes().expect("it succeeds")
    }

    /// Many steps for few threads: a thread takes several of them, and the last one is cut.
    #[test]
    fn threads_take_several_steps() {
        let _simulated = testkit::simulated_runtime();
        for (dtype, of_step) in [(DType::F32, 1024), (DType::BF16, 1024), (DType::F64, 512)] {
            for n in [130 * of_step, 130 * of_step - 3, 129 * of_step + 258] {
                let schedule = Schedule { threads: 256, steps: 130 };
                assert!(grid(256, 130).grid[1] < 130);
                let bytes = filled(dtype, n, 0, schedule);
                assert!(bytes == filled(dtype, n, 1, schedule), "{n} of {dtype}");
                // Each step draws other words.
                let step = usize::try_from(of_step).expect("it fits") * dtype.itemsize();
                let steps: std::collections::BTreeSet<&[u8]> = bytes.chunks(step).collect();
                assert_eq!(steps.len(), 130, "{n} of {dtype}");
            }
        }
    }
}
