//! The places that a tool fills with its functions, and how they are handed to it.
//!
//! **Invariant:** a place is written by the tool alone, while it is initialised, and read only afterwards.
//!
//! # Safety
//! A tool writes through the pointers that it is handed here. The places are atomics, which have the layout of a pointer
//! and may be written at any time.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::types::{Callbacks, FunctionTable, NVTX_VERSION, VersionInfo};

/// Where a tool puts one of its functions.
type Slot = AtomicPtr<c_void>;

/// The places of a module of the interface, and the table of pointers to them which a tool is given.
#[repr(C)]
struct Module<const N: usize> {
    slots: [Slot; N],
}

impl<const N: usize> Module<N> {
    const fn new() -> Self {
        Self { slots: [const { AtomicPtr::new(ptr::null_mut()) }; N] }
    }
}

/// A table of pointers to places. It is never written, so threads may share it.
#[repr(transparent)]
struct Table<const N: usize>([*const Slot; N]);

// SAFETY: the pointers are to atomics that live as long as the process.
unsafe impl<const N: usize> Sync for Table<N> {}

/// Makes the places of a module and the table that points to them. The first entry stands for no function, as in the
/// header, and is null.
macro_rules! module {
    ($slots:ident, $table:ident, $count:literal) => {
        static $slots: Module<$count> = Module::new();
        static $table: Table<$count> = {
            let mut table = [ptr::null(); $count];
            let mut index = 1;
            while index < $count {
                table[index] = &raw const $slots.slots[index];
                index += 1;
            }
            Table(table)
        };
    };
}

module!(CORE, CORE_TABLE, 16);
module!(CUDA, CUDA_TABLE, 9);
module!(OPENCL, OPENCL_TABLE, 15);
module!(CUDART, CUDART_TABLE, 7);
module!(CORE2, CORE2_TABLE, 16);
module!(SYNC, SYNC_TABLE, 7);

/// A function of the interface: its module and its number there, as in the header.
#[derive(Clone, Copy)]
pub(super) enum Function {
    MarkEx,
    MarkA,
    RangeStartA,
    RangeEnd,
    RangePushA,
    RangePop,
    NameCategoryA,
    NameOsThreadA,
    NameCuDeviceA,
    NameCuStreamA,
    DomainMarkEx,
    DomainRangeStartEx,
    DomainRangeEnd,
    DomainRangePushEx,
    DomainRangePop,
    DomainNameCategoryA,
    DomainRegisterStringA,
    DomainCreateA,
    DomainDestroy,
}

impl Function {
    fn slot(self) -> &'static Slot {
        match self {
            Self::MarkEx => &CORE.slots[1],
            Self::MarkA => &CORE.slots[2],
            Self::RangeStartA => &CORE.slots[5],
            Self::RangeEnd => &CORE.slots[7],
            Self::RangePushA => &CORE.slots[9],
            Self::RangePop => &CORE.slots[11],
            Self::NameCategoryA => &CORE.slots[12],
            Self::NameOsThreadA => &CORE.slots[14],
            Self::NameCuDeviceA => &CUDA.slots[1],
            Self::NameCuStreamA => &CUDA.slots[5],
            Self::DomainMarkEx => &CORE2.slots[1],
            Self::DomainRangeStartEx => &CORE2.slots[2],
            Self::DomainRangeEnd => &CORE2.slots[3],
            Self::DomainRangePushEx => &CORE2.slots[4],
            Self::DomainRangePop => &CORE2.slots[5],
            Self::DomainNameCategoryA => &CORE2.slots[8],
            Self::DomainRegisterStringA => &CORE2.slots[10],
            Self::DomainCreateA => &CORE2.slots[12],
            Self::DomainDestroy => &CORE2.slots[14],
        }
    }

    /// What the tool put there; null where it has no such function.
    pub(super) fn address(self) -> *mut c_void {
        self.slot().load(Ordering::Relaxed)
    }
}

/// Empties all places: after a tool failed to start, nothing of it may be called.
pub(super) fn clear() {
    let all = [&CORE.slots[..], &CUDA.slots, &OPENCL.slots, &CUDART.slots, &CORE2.slots, &SYNC.slots];
    for slot in all.into_iter().flatten() {
        slot.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// `GetModuleFunctionTable`: gives a tool the places of a module.
unsafe extern "C" fn module_table(module: u32, table: *mut FunctionTable, size: *mut u32) -> i32 {
    let (found, entries) = match module {
        1 => (CORE_TABLE.0.as_ptr(), 16),
        2 => (CUDA_TABLE.0.as_ptr(), 9),
        3 => (OPENCL_TABLE.0.as_ptr(), 15),
        4 => (CUDART_TABLE.0.as_ptr(), 7),
        5 => (CORE2_TABLE.0.as_ptr(), 16),
        6 => (SYNC_TABLE.0.as_ptr(), 7),
        _ => return 0,
    };
    if !size.is_null() {
        // SAFETY: the tool passes null or the address of a number of its own.
        unsafe { size.write(entries) };
    }
    if !table.is_null() {
        // SAFETY: the tool passes null or the address of a pointer of its own.
        unsafe { table.write(found.cast()) };
    }
    1
}

/// `SetInjectionNvtxVersion`: a tool tells its version, of which nothing here depends.
unsafe extern "C" fn take_tool_version(_version: u32) {}

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_table };

static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: NVTX_VERSION as u32,
    reserved: 0,
    set_injection_version: take_tool_version,
};

/// `NvtxGetExportTable`: what a tool is handed first.
pub(super) unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}
