//! Launches of `kernels/symmetric.cu`: sums over the devices of a process, barriers, and copies to other devices' memory.
//!
//! # Safety
//! The kernels reach, beside their arguments, the regions that [`Region`] describes: parts of one
//! [`SymmetricMemory`], whose parts all live as long as any of them, and the part of the kernel's own device is always an
//! argument. Each function checks that its buffers have the bytes that the kernel is told of.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use std::ops::Range;
use std::sync::OnceLock;

use c10_core::{DeviceBuffer, DeviceIndex, MemoryAccess, PreparedLaunch, Runtime, SymmetricMemory};

use super::{Text, prepare};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};

static TEXT: Text = Text { name: "symmetric", ptx: include_str!("../../../kernels/symmetric.ptx") };

/// The most devices.
pub(crate) const RANKS: usize = 16;
/// The largest tensor that is summed by small sums.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Where not zero says that nobody is to wait any more. The region begins with the addresses of all programs' memory.
pub(crate) const ABORTED: Range<usize> = 512..516;
/// Where what others send for small sums arrives.
const ARRIVALS: usize = 64 << 10;
/// Blocks of large sums, and the bytes that each brings at once, in two halves.
const BLOCKS: u64 = 32;
const STAGE: u64 = 64 << 10;
/// The fewest packs of 16 bytes that are worth a block.
const FEWEST_PACKS: u64 = 256;
const THREADS: u32 = 512;
/// Threads for tensors of a few bytes.
const FEW_THREADS: u32 = 64;
/// Words of a launch.
const WORDS: usize = 7;

/// How elements are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Truths,
    Bytes,
    Shorts,
    Words,
    Longs,
    Halves,
    Brains,
    Singles,
    Doubles,
}

impl Kind {
    /// How those of a dtype are added; nothing for floats of 8 bits.
    pub(crate) fn of(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::Bool => Self::Truths,
            DType::U8 | DType::I8 => Self::Bytes,
            DType::I16 => Self::Shorts,
            DType::I32 => Self::Words,
            DType::I64 => Self::Longs,
            DType::F16 | DType::C32 => Self::Halves,
            DType::BF16 => Self::Brains,
            DType::F32 | DType::C64 => Self::Singles,
            DType::F64 | DType::C128 => Self::Doubles,
            DType::F8E4M3FN | DType::F8E5M2 => return None,
        })
    }

    /// The kernels of small and of large sums.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Truths => ["symmetric_small_truths", "symmetric_large_truths"],
            Self::Bytes => ["symmetric_small_bytes", "symmetric_large_bytes"],
            Self::Shorts => ["symmetric_small_shorts", "symmetric_large_shorts"],
            Self::Words => ["symmetric_small_words", "symmetric_large_words"],
            Self::Longs => ["symmetric_small_longs", "symmetric_large_longs"],
            Self::Halves => ["symmetric_small_halves", "symmetric_large_halves"],
            Self::Brains => ["symmetric_small_brains", "symmetric_large_brains"],
            Self::Singles => ["symmetric_small_singles", "symmetric_large_singles"],
            Self::Doubles => ["symmetric_small_doubles", "symmetric_large_doubles"],
        }
    }
}

/// Where what large sums bring is in a region of so many ranks.
fn staging(ranks: usize) -> usize {
    ARRIVALS + 2 * ranks * 2 * SMALL_BYTES
}

/// Bytes of a region before those of programs.
pub(crate) fn head(ranks: usize) -> usize {
    staging(ranks) + usize::try_from(2 * BLOCKS * STAGE).unwrap_or(usize::MAX)
}

/// Bytes of the head that must be zero at first.
pub(crate) fn cleared(ranks: usize) -> usize {
    staging(ranks)
}

/// What a launch is told of the regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region<'a> {
    pub(crate) memory: &'a SymmetricMemory,
    pub(crate) rank: usize,
    /// After how long a wait ends the context, in nanoseconds; 0 for never.
    pub(crate) limit_ns: u64,
}

impl Region<'_> {
    fn words(&self, rank: usize, place: usize, bytes: usize, piece: u64) -> [u64; WORDS] {
        let (base, stride) = (self.memory.part(0).address(), self.memory.stride());
        let ranks = self.memory.ranks() as u64;
        [base, stride, rank as u64 | ranks << 32, place as u64, bytes as u64, piece, self.limit_ns]
    }

    /// The part of the kernel's own device, as far as kernels use it.
    fn own(&self) -> (&DeviceBuffer, Range<usize>) {
        (self.memory.part(self.rank), 0..head(self.memory.ranks()))
    }
}

/// The launches of one device, each prepared when it is first needed.
#[derive(Debug)]
pub(crate) struct Launches {
    device: DeviceIndex,
    /// By kind: tiny, small and large sums.
    sums: [[OnceLock<PreparedLaunch>; 3]; 9],
    barrier: OnceLock<PreparedLaunch>,
    put: OnceLock<PreparedLaunch>,
    get: OnceLock<PreparedLaunch>,
}

/// A launch, prepared unless it is already.
fn prepared(
    at: &OnceLock<PreparedLaunch>,
    make: impl FnOnce() -> c10_core::Result<PreparedLaunch>,
) -> Result<&PreparedLaunch> {
    if let Some(known) = at.get() {
        return Ok(known);
    }
    let made = make()?;
    Ok(at.get_or_init(|| made))
}

/// A part of a buffer.
pub(crate) type Part<'a> = (&'a DeviceBuffer, Range<usize>);

/// A sum that is worked out and only has to be queued.
#[derive(Debug)]
pub(crate) struct Sum<'a> {
    launch: &'a PreparedLaunch,
    blocks: u32,
    piece: u64,
}

impl Launches {
    pub(crate) fn new(device: DeviceIndex) -> Self {
        Self { device, sums: Default::default(), barrier: OnceLock::new(), put: OnceLock::new(), get: OnceLock::new() }
    }

    /// Works out the launch of a sum of tensors of so many bytes, of which there are some.
    pub(crate) fn sum(&self, kind: Kind, bytes: usize, ranks: usize) -> Result<Sum<'_>> {
        let [small, large] = kind.names();
        let units = bytes.div_ceil(8) as u64;
        let (size, name, threads) = match bytes {
            0..=512 => (0, small, FEW_THREADS),
            513..=SMALL_BYTES => (1, small, THREADS),
            _ => (2, large, THREADS),
        };
        let part = (bytes.div_ceil(16) as u64).div_ceil(ranks as u64);
        let most = STAGE / 16 / ranks as u64;
        let piece = part.div_ceil(BLOCKS).max(FEWEST_PACKS).min(most);
        let blocks = if size < 2 { units.div_ceil(THREADS.into()) } else { part.div_ceil(piece).min(BLOCKS) };
        let launch = prepared(&self.sums[kind as usize][size], || {
            let launch = prepare(&TEXT, name, self.device, threads, (3, WORDS))?;
            let accesses = [MemoryAccess::Undeclared, MemoryAccess::Reads("input"), MemoryAccess::Writes("output")];
            Ok(launch.accessing(&accesses))
        })?;
        Ok(Sum { launch, blocks: u32::try_from(blocks).unwrap_or(u32::MAX), piece })
    }

    /// Queues a sum of tensors on the current stream of the device: those of all ranks have the same bytes and kind.
    pub(crate) fn queue_sum(
        &self,
        runtime: &Runtime,
        region: Region<'_>,
        sum: &Sum<'_>,
        from: Part<'_>,
        to: Part<'_>,
    ) -> Result<()> {
        let bytes = from.1.len();
        check(region, &from, bytes)?;
        check(region, &to, bytes)?;
        let words = region.words(region.rank, staging(region.memory.ranks()), bytes, sum.piece);
        // SAFETY: both tensors have so many bytes and each region its head, which is all that the kernel touches.
        unsafe { sum.launch.launch(runtime, sum.blocks, &[region.own(), from, to], &words)? };
        Ok(())
    }

    /// Prepares a barrier.
    pub(crate) fn prepare_barrier(&self) -> Result<&PreparedLaunch> {
        prepared(&self.barrier, || prepare(&TEXT, "symmetric_barrier", self.device, FEW_THREADS, (1, WORDS)))
    }

    /// Queues a barrier of all ranks on the current stream of the device.
    pub(crate) fn queue_barrier(&self, runtime: &Runtime, region: Region<'_>) -> Result<()> {
        let words = region.words(region.rank, 0, 0, 0);
        check(region, &region.own(), head(region.memory.ranks()))?;
        // SAFETY: each region has its head, which is all that the kernel touches.
        unsafe { self.prepare_barrier()?.launch(runtime, 1, &[region.own()], &words)? };
        Ok(())
    }

    /// Queues a copy of bytes of this device to a place in the region of another rank.
    pub(crate) fn put(&self, runtime: &Runtime, region: Region<'_>, from: Part<'_>, to: (usize, usize)) -> Result<()> {
        let launch = prepared(&self.put, || prepare(&TEXT, "symmetric_put", self.device, THREADS, (2, WORDS)))?;
        copy(launch, runtime, region, from, to)
    }

    /// Queues a copy to bytes of this device from a place in the region of another rank.
    pub(crate) fn get(&self, runtime: &Runtime, region: Region<'_>, to: Part<'_>, from: (usize, usize)) -> Result<()> {
        let launch = prepared(&self.get, || prepare(&TEXT, "symmetric_get", self.device, THREADS, (2, WORDS)))?;
        copy(launch, runtime, region, to, from)
    }
}

/// Queues a copy between bytes of the own device and a place in the region of a rank.
fn copy(
    launch: &PreparedLaunch,
    runtime: &Runtime,
    region: Region<'_>,
    local: Part<'_>,
    (rank, place): (usize, usize),
) -> Result<()> {
    let bytes = local.1.len();
    check(region, &local, bytes)?;
    let is_inside =
        rank < region.memory.ranks() && place.checked_add(bytes).is_some_and(|end| end <= region.memory.len());
    if !is_inside {
        return Err(invalid(format!("{bytes} bytes at {place} are not in the region of rank {rank}")));
    }
    let words = region.words(rank, place, bytes, 0);
    let blocks = (bytes as u64).div_ceil(16 * u64::from(THREADS)).clamp(1, 2 * BLOCKS);
    // SAFETY: the local part has so many bytes, and so has the region from the place on.
    unsafe { launch.launch(runtime, u32::try_from(blocks).unwrap_or(1), &[region.own(), local], &words)? };
    Ok(())
}

/// Refuses what the kernels would not find as they are told.
fn check(region: Region<'_>, (buffer, range): &Part<'_>, bytes: usize) -> Result<()> {
    let memory = region.memory;
    let is_whole = region.rank < memory.ranks() && memory.ranks() <= RANKS && memory.len() >= head(memory.ranks());
    if is_whole && range.len() == bytes && range.end <= buffer.len() {
        return Ok(());
    }
    Err(invalid(format!("{bytes} bytes at {} are not in a buffer of {} bytes", range.start, buffer.len())))
}
