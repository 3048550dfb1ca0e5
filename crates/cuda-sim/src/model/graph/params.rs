//! Parameters of nodes as plain numbers, and what the driver refuses about them without looking at memory.
//!
//! The C structs hold raw pointers; here they are integers, so that graphs may move between threads. Whether the bytes
//! named by an address exist is for the machine to find out, with [`Copy3d::first_bytes`] and [`Fill::span`].

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::{CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUhostFn, CUmemorytype};

/// One side of a copy, in the fields of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) memory_type: CUmemorytype,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    /// Distance of rows in bytes; 0 is "as wide as the copy".
    pub(crate) pitch: u64,
    /// Rows in a slice; 0 is "as many as the copy has".
    pub(crate) height: u64,
    /// Device whose memory this is, as the machine found it; `None` for host memory.
    pub(crate) owner: Option<i32>,
}

/// Parameters of a memcpy node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy3d {
    pub(crate) src: Operand,
    pub(crate) dst: Operand,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// Where one side of a copy begins and how far its rows and slices are apart, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
    /// Bytes from the first to one past the last that are touched.
    pub(crate) span: u64,
}

/// Parameters of a memset node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) dst: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) element_bytes: u32,
    /// Row length in elements.
    pub(crate) width: u64,
    /// Number of rows.
    pub(crate) height: u64,
    /// Device whose memory this is, as the machine found it; `None` for pinned host memory.
    pub(crate) owner: Option<i32>,
}

/// Parameters of a host node.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: CUhostFn,
    pub(crate) user_data: u64,
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCall").field("function", &self.address()).field("user_data", &self.user_data).finish()
    }
}

impl Operand {
    /// The address that the memory type says is meant.
    pub(crate) fn base(&self) -> u64 {
        if self.memory_type == CUmemorytype::CU_MEMORYTYPE_HOST { self.host } else { self.device }
    }

    fn is_linear(&self) -> bool {
        let linear =
            [CUmemorytype::CU_MEMORYTYPE_HOST, CUmemorytype::CU_MEMORYTYPE_DEVICE, CUmemorytype::CU_MEMORYTYPE_UNIFIED];
        linear.contains(&self.memory_type)
    }

    /// Where the first byte of a box of this size is; `None` when the fields contradict each other.
    fn place(&self, width: u64, height: u64, depth: u64) -> Option<Place> {
        let row_bytes = self.x_bytes.checked_add(width)?;
        let pitch = if self.pitch == 0 { row_bytes } else { self.pitch };
        let rows_used = self.y.checked_add(height)?;
        let rows = if self.height == 0 { rows_used } else { self.height };
        let slice = pitch.checked_mul(rows)?;
        if (height > 1 || depth > 1) && pitch < row_bytes || depth > 1 && rows < rows_used {
            return None;
        }
        let offset = self.z.checked_mul(slice)?.checked_add(self.y.checked_mul(pitch)?)?.checked_add(self.x_bytes)?;
        let far = slice.checked_mul(depth - 1)?.checked_add(pitch.checked_mul(height - 1)?)?;
        let address = self.base().checked_add(offset)?;
        let span = far.checked_add(width)?;
        address.checked_add(span)?;
        Some(Place { address, pitch, slice, span })
    }
}

impl Copy3d {
    /// Reads the C struct. Levels of detail and reserved fields are dropped, as there are no arrays.
    ///
    /// `INVALID_VALUE`: an extent is zero, a side is no linear memory, has no address, or a pitch is shorter than a row.
    pub(crate) fn from_raw(raw: &CUDA_MEMCPY3D) -> Result<Self, CUresult> {
        let copy = Self {
            src: Operand {
                memory_type: raw.srcMemoryType,
                host: address_of(raw.srcHost),
                device: raw.srcDevice,
                x_bytes: raw.srcXInBytes as u64,
                y: raw.srcY as u64,
                z: raw.srcZ as u64,
                pitch: raw.srcPitch as u64,
                height: raw.srcHeight as u64,
                owner: None,
            },
            dst: Operand {
                memory_type: raw.dstMemoryType,
                host: address_of(raw.dstHost),
                device: raw.dstDevice,
                x_bytes: raw.dstXInBytes as u64,
                y: raw.dstY as u64,
                z: raw.dstZ as u64,
                pitch: raw.dstPitch as u64,
                height: raw.dstHeight as u64,
                owner: None,
            },
            width_bytes: raw.WidthInBytes as u64,
            height: raw.Height as u64,
            depth: raw.Depth as u64,
        };
        copy.first_bytes().map(|_| copy)
    }

    /// A copy of a run of bytes, with both addresses as unified ones.
    #[cfg(test)]
    pub(crate) fn linear(dst: u64, src: u64, bytes: u64) -> Self {
        let side = |device| Operand {
            memory_type: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            host: 0,
            device,
            x_bytes: 0,
            y: 0,
            z: 0,
            pitch: 0,
            height: 0,
            owner: None,
        };
        Self { src: side(src), dst: side(dst), width_bytes: bytes, height: 1, depth: 1 }
    }

    /// Says whose memory the two sides are.
    pub(crate) fn owned_by(mut self, src: Option<i32>, dst: Option<i32>) -> Self {
        self.src.owner = src;
        self.dst.owner = dst;
        self
    }

    /// Writes the C struct.
    pub(crate) fn to_raw(self) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            srcXInBytes: size(self.src.x_bytes),
            srcY: size(self.src.y),
            srcZ: size(self.src.z),
            srcLOD: 0,
            srcMemoryType: self.src.memory_type,
            srcHost: pointer_to(self.src.host).cast_const(),
            srcDevice: self.src.device,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: size(self.src.pitch),
            srcHeight: size(self.src.height),
            dstXInBytes: size(self.dst.x_bytes),
            dstY: size(self.dst.y),
            dstZ: size(self.dst.z),
            dstLOD: 0,
            dstMemoryType: self.dst.memory_type,
            dstHost: pointer_to(self.dst.host),
            dstDevice: self.dst.device,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: size(self.dst.pitch),
            dstHeight: size(self.dst.height),
            WidthInBytes: size(self.width_bytes),
            Height: size(self.height),
            Depth: size(self.depth),
        }
    }

    /// Where source and destination begin, in this order.
    pub(crate) fn first_bytes(&self) -> Result<(Place, Place), CUresult> {
        let refused = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        if self.width_bytes == 0 || self.height == 0 || self.depth == 0 {
            return refused;
        }
        if [&self.src, &self.dst].iter().any(|side| !side.is_linear() || side.base() == 0) {
            return refused;
        }
        let place = |side: &Operand| side.place(self.width_bytes, self.height, self.depth);
        place(&self.src).zip(place(&self.dst)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn is_one_dimensional(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    /// Whether an instantiated node with these parameters may be given those of `new`.
    ///
    /// Kinds and devices of both sides are fixed; a copy of more than one row, before or after, cannot change at all.
    pub(crate) fn may_become(&self, new: &Self) -> bool {
        let same_side = |old: &Operand, new: &Operand| old.memory_type == new.memory_type && old.owner == new.owner;
        let one_row = self.is_one_dimensional() && new.is_one_dimensional();
        self == new || one_row && same_side(&self.src, &new.src) && same_side(&self.dst, &new.dst)
    }
}

impl Fill {
    /// Reads the C struct.
    ///
    /// `INVALID_VALUE`: an element is not 1, 2 or 4 bytes, an extent is zero, there is no address or it is not aligned
    /// to an element, or the pitch of several rows is shorter than a row.
    pub(crate) fn from_raw(raw: &CUDA_MEMSET_NODE_PARAMS) -> Result<Self, CUresult> {
        let fill = Self {
            dst: raw.dst,
            pitch: raw.pitch as u64,
            value: raw.value,
            element_bytes: raw.elementSize,
            width: raw.width as u64,
            height: raw.height as u64,
            owner: None,
        };
        fill.span().map(|_| fill)
    }

    /// Says whose memory is set.
    pub(crate) fn owned_by(mut self, owner: Option<i32>) -> Self {
        self.owner = owner;
        self
    }

    /// Writes the C struct.
    pub(crate) fn to_raw(self) -> CUDA_MEMSET_NODE_PARAMS {
        CUDA_MEMSET_NODE_PARAMS {
            dst: self.dst,
            pitch: size(self.pitch),
            value: self.value,
            elementSize: self.element_bytes,
            width: size(self.width),
            height: size(self.height),
        }
    }

    /// Row length in bytes.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.width.saturating_mul(u64::from(self.element_bytes))
    }

    /// Bytes from the first to one past the last that are set.
    pub(crate) fn span(&self) -> Result<u64, CUresult> {
        let refused = CUresult::CUDA_ERROR_INVALID_VALUE;
        let element_bytes = u64::from(self.element_bytes);
        let aligned = matches!(element_bytes, 1 | 2 | 4) && self.dst.is_multiple_of(element_bytes);
        if !aligned || self.width == 0 || self.height == 0 || self.dst == 0 {
            return Err(refused);
        }
        let row = self.width.checked_mul(element_bytes).ok_or(refused)?;
        if self.height > 1 && self.pitch < row {
            return Err(refused);
        }
        let far = if self.height == 1 { 0 } else { self.pitch.checked_mul(self.height - 1).ok_or(refused)? };
        let span = far.checked_add(row).ok_or(refused)?;
        self.dst.checked_add(span).map(|_| span).ok_or(refused)
    }

    /// Whether an instantiated node with these parameters may be given those of `new`.
    ///
    /// The device is fixed (pinned host memory passes for any); the extent is too, unless there is one row before and
    /// after.
    pub(crate) fn may_become(&self, new: &Self) -> bool {
        let extent = |fill: &Self| (fill.width, fill.height, fill.element_bytes, fill.pitch);
        let one_row = self.height == 1 && new.height == 1;
        let same_device = match (self.owner, new.owner) {
            (Some(old), Some(new)) => old == new,
            (None, _) | (_, None) => true,
        };
        same_device && (one_row || extent(self) == extent(new))
    }
}

impl HostCall {
    /// Reads the C struct. `INVALID_VALUE`: there is no function.
    pub(crate) fn from_raw(raw: &CUDA_HOST_NODE_PARAMS) -> Result<Self, CUresult> {
        match raw.fn_ {
            Some(_) => Ok(Self { function: raw.fn_, user_data: address_of(raw.userData) }),
            None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Writes the C struct.
    pub(crate) fn to_raw(self) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS { fn_: self.function, userData: pointer_to(self.user_data) }
    }

    /// Address of the function.
    pub(crate) fn address(&self) -> u64 {
        self.function.map_or(0, |function| (function as *const ()).expose_provenance() as u64)
    }
}

fn address_of<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer_to(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(size(address))
}

/// Numbers that came from a `usize` go back into one.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
