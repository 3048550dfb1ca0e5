//! Copies and sets as the program describes them, checked and turned into what the memory carries out.
//!
//! Hardware checks a copy against the allocation it is in when it is queued, so a range past the end is refused here;
//! what a graph touches later is only found out when it runs.

use cuda_sys::driver::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype};

use super::State;
use super::graph::{self, Copy3d};
use super::memory::{Endpoint, Fill, Look, Memory, Source, Transfer};
use crate::claim::{handle, host_pointer};
use crate::codes::{Answer, INVALID_VALUE};

/// Longest distance of rows that copies take.
const PITCH_MAX: u64 = 2_147_483_647;

/// What kind of memory one side of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of a device.
    Device,
    /// Of the host, and reachable for devices.
    Pinned,
    /// Of the host, and only reachable by way of the driver.
    Pageable,
}

/// From where memory is looked at: memory of graphs may be named before it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Work that is queued: everything must be there.
    Now,
    /// A node made by hand: what a node allocates counts, as far as it goes.
    Node,
    /// Captured work: what a node allocates counts, and how far it goes is not looked at.
    Capture,
}

/// A checked copy.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) transfer: Transfer,
    pub(crate) from: Place,
    pub(crate) to: Place,
}

impl Plan {
    /// Picoseconds that a byte takes.
    pub(crate) fn picoseconds(&self) -> u64 {
        if self.from == Place::Device && self.to == Place::Device { 1 } else { 20 }
    }
}

/// One side of a copy as the program describes it.
struct Side {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    x: u64,
    y: u64,
    z: u64,
    pitch: u64,
    height: u64,
}

/// A run of bytes as copy parameters. The kinds say how an address is to be read.
pub(crate) fn linear(
    to: u64,
    to_kind: CUmemorytype,
    from: u64,
    from_kind: CUmemorytype,
    bytes: usize,
) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: from_kind,
        srcHost: host_pointer(from),
        srcDevice: from,
        dstMemoryType: to_kind,
        dstHost: host_pointer(to),
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..nothing()
    }
}

/// Copy parameters with every field zero.
fn nothing() -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype(0),
        srcHost: host_pointer(0),
        srcDevice: 0,
        srcArray: handle(0),
        reserved0: host_pointer(0),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype(0),
        dstHost: host_pointer(0),
        dstDevice: 0,
        dstArray: handle(0),
        reserved1: host_pointer(0),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 0,
        Height: 0,
        Depth: 0,
    }
}

/// The parameters of a 2-D copy as those of a 3-D one.
pub(crate) fn of_2d(copy: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..nothing()
    }
}

/// Whether a copy has nothing to do.
pub(crate) fn is_empty(copy: &CUDA_MEMCPY3D) -> bool {
    copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0
}

/// Checks copy parameters and turns them into a copy. `None` when there is nothing to do.
pub(crate) fn copy(memory: &Memory, copy: &CUDA_MEMCPY3D, sight: Sight) -> Answer<Plan> {
    let extent = [copy.WidthInBytes as u64, copy.Height as u64, copy.Depth as u64];
    let from = Side {
        kind: copy.srcMemoryType,
        host: copy.srcHost.addr() as u64,
        device: copy.srcDevice,
        x: copy.srcXInBytes as u64,
        y: copy.srcY as u64,
        z: copy.srcZ as u64,
        pitch: copy.srcPitch as u64,
        height: copy.srcHeight as u64,
    };
    let to = Side {
        kind: copy.dstMemoryType,
        host: copy.dstHost.addr() as u64,
        device: copy.dstDevice,
        x: copy.dstXInBytes as u64,
        y: copy.dstY as u64,
        z: copy.dstZ as u64,
        pitch: copy.dstPitch as u64,
        height: copy.dstHeight as u64,
    };
    let (from, from_place) = resolve(memory, &from, extent, sight)?;
    let (to, to_place) = resolve(memory, &to, extent, sight)?;
    if !memory.is_writable(to.address, to.span(extent[0], extent[1], extent[2]).unwrap_or(u64::MAX)) {
        return Err(INVALID_VALUE);
    }
    let [width, height, depth] = extent;
    let transfer = Transfer { from: Source::Memory(from), to, width, height, depth };
    Ok(Plan { transfer, from: from_place, to: to_place })
}

fn resolve(memory: &Memory, side: &Side, [width, height, depth]: [u64; 3], sight: Sight) -> Answer<(Endpoint, Place)> {
    if side.pitch > PITCH_MAX || (side.pitch != 0 && side.x.checked_add(width).is_none_or(|end| end > side.pitch)) {
        return Err(INVALID_VALUE);
    }
    let pitch = if side.pitch == 0 { width } else { side.pitch };
    let rows = if side.height == 0 { height } else { side.height };
    if depth > 1 && side.y.checked_add(height).is_none_or(|end| end > rows) {
        return Err(INVALID_VALUE);
    }
    let slice = pitch.checked_mul(rows).ok_or(INVALID_VALUE)?;
    let base = match side.kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => side.host,
        CUmemorytype::CU_MEMORYTYPE_DEVICE | CUmemorytype::CU_MEMORYTYPE_UNIFIED => side.device,
        _ => return Err(INVALID_VALUE),
    };
    let skipped = slice.checked_mul(side.z).zip(pitch.checked_mul(side.y)).ok_or(INVALID_VALUE)?;
    let offset = skipped.0.checked_add(skipped.1).and_then(|sum| sum.checked_add(side.x)).ok_or(INVALID_VALUE)?;
    let address = base.checked_add(offset).filter(|_| base != 0).ok_or(INVALID_VALUE)?;
    let endpoint = Endpoint { address, pitch, slice };
    let span = endpoint.span(width, height, depth).ok_or(INVALID_VALUE)?;
    let place = classify(memory, address, span, sight)?;
    if place == Place::Pageable && side.kind == CUmemorytype::CU_MEMORYTYPE_DEVICE {
        return Err(INVALID_VALUE);
    }
    Ok((endpoint, place))
}

/// What kind of memory a range is; an error when it is of a device and not all there, or not there at all.
pub(crate) fn classify(memory: &Memory, address: u64, length: u64, sight: Sight) -> Answer<Place> {
    if sight != Sight::Now
        && let Some((base, promised, _)) = memory.promised_at(address)
    {
        let inside = address - base <= promised.saturating_sub(length) && length <= promised;
        return if inside || sight == Sight::Capture { Ok(Place::Device) } else { Err(INVALID_VALUE) };
    }
    if memory.is_device_address(address) {
        return match memory.look_at(address, length) {
            Look::Fine | Look::Early => Ok(Place::Device),
            Look::Ghost | Look::PastTheEnd | Look::NotAllocated | Look::Unmapped => Err(INVALID_VALUE),
        };
    }
    if memory.pinned_at(address).is_some() {
        return if memory.is_pinned(address, length) { Ok(Place::Pinned) } else { Err(INVALID_VALUE) };
    }
    if memory.host_range_exists(address, length) { Ok(Place::Pageable) } else { Err(INVALID_VALUE) }
}

/// Checks set parameters and turns them into a set.
pub(crate) fn set(memory: &Memory, set: &CUDA_MEMSET_NODE_PARAMS, sight: Sight) -> Answer<Fill> {
    let size = u64::from(set.elementSize);
    let (width, height) = ((set.width as u64).checked_mul(size).ok_or(INVALID_VALUE)?, set.height as u64);
    let pitch = set.pitch as u64;
    let rows = height > 1;
    let aligned = matches!(size, 1 | 2 | 4) && set.dst.is_multiple_of(size) && (!rows || pitch.is_multiple_of(size));
    if !aligned || (rows && pitch < width) || set.dst == 0 {
        return Err(INVALID_VALUE);
    }
    let to = Endpoint { address: set.dst, pitch, slice: 0 };
    let span = to.span(width, height, 1).ok_or(INVALID_VALUE)?;
    if classify(memory, set.dst, span, sight)? == Place::Pageable || !memory.is_writable(set.dst, span) {
        return Err(INVALID_VALUE);
    }
    let pattern = set.value.to_le_bytes()[..usize::try_from(size).unwrap_or(1)].to_vec();
    Ok(Fill { to, pattern, width, height })
}

impl State {
    /// How a stream's work looks at memory.
    pub(crate) fn sight_of(&self, key: u64) -> Sight {
        let capturing = self.streams.get(&key).is_some_and(|stream| stream.capturing.is_some());
        if capturing { Sight::Capture } else { Sight::Now }
    }

    /// The device whose memory an address is; none for host memory.
    fn owner(&self, address: u64) -> Option<i32> {
        let mapped = self.memory.region_at(address).map(|(_, region)| region.device);
        let device = mapped.or_else(|| self.memory.promised_at(address).map(|(_, _, device)| device))?;
        i32::try_from(device).ok()
    }

    /// A copy of a graph, with the devices of both sides.
    pub(crate) fn owned_copy(&self, copy: Copy3d) -> Copy3d {
        let owners = (self.owner(copy.src.base()), self.owner(copy.dst.base()));
        copy.owned_by(owners.0, owners.1)
    }

    /// A set of a graph, with the device of its memory.
    pub(crate) fn owned_fill(&self, fill: graph::Fill) -> graph::Fill {
        fill.owned_by(self.owner(fill.dst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_checked_against_their_allocation() {
        let mut memory = Memory::new(1, 1 << 30);
        let base = memory.allocate(0, 1, 100).expect("fits");
        let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        assert!(copy(&memory, &linear(base, device, base + 50, device, 50), Sight::Now).is_ok());
        assert!(copy(&memory, &linear(base, device, base + 50, device, 51), Sight::Now).is_err());
        let host = [0_u8; 16];
        let plan = copy(
            &memory,
            &linear(base, device, host.as_ptr().addr() as u64, CUmemorytype::CU_MEMORYTYPE_HOST, 16),
            Sight::Now,
        );
        assert_eq!(plan.map(|plan| plan.from), Ok(Place::Pageable));
    }

    #[test]
    fn sets_must_be_aligned() {
        let mut memory = Memory::new(1, 1 << 30);
        let base = memory.allocate(0, 1, 100).expect("fits");
        let params = |dst, element_size, width| CUDA_MEMSET_NODE_PARAMS {
            dst,
            pitch: 0,
            value: 1,
            elementSize: element_size,
            width,
            height: 1,
        };
        assert!(set(&memory, &params(base + 4, 4, 24), Sight::Now).is_ok());
        assert!(set(&memory, &params(base + 4, 4, 25), Sight::Now).is_err());
        assert!(set(&memory, &params(base + 2, 4, 1), Sight::Now).is_err());
        assert!(set(&memory, &params(base, 3, 1), Sight::Now).is_err());
    }
}
