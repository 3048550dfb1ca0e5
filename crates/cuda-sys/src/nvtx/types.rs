//! What NVTX's functions take: plain structures and numbers, laid out as the C header lays them out.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// Version of the interface: that of NVTX 3.
pub const NVTX_VERSION: u16 = 3;

/// What push and pop answer when no tool counts ranges.
pub const NVTX_NO_PUSH_POP_TRACKING: i32 = -2;

const COLOR_ARGB: i32 = 1;
const MESSAGE_ASCII: i32 = 1;
const MESSAGE_REGISTERED: i32 = 3;

/// Types of the value that a mark or range may carry: `nvtxPayloadType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum PayloadType {
    /// An unsigned integer of 64 bits.
    U64 = 1,
    /// A signed integer of 64 bits.
    I64 = 2,
    /// A floating-point number of 64 bits.
    F64 = 3,
    /// An unsigned integer of 32 bits.
    U32 = 4,
    /// A signed integer of 32 bits.
    I32 = 5,
    /// A floating-point number of 32 bits.
    F32 = 6,
}

/// A text that a tool was given once and knows by a handle since.
#[derive(Debug, Clone, Copy)]
pub struct StringHandle(pub(super) *mut c_void);

// SAFETY: a handle is a number to this crate; the tool that made it may be called from every thread.
unsafe impl Send for StringHandle {}
// SAFETY: as above.
unsafe impl Sync for StringHandle {}

/// A tool's own name for a domain. Null is the domain of the whole program.
#[derive(Debug)]
pub struct DomainHandle(pub(super) *mut c_void);

// SAFETY: a handle is a number to this crate; the tool that made it may be called from every thread.
unsafe impl Send for DomainHandle {}
// SAFETY: as above.
unsafe impl Sync for DomainHandle {}

/// `nvtxEventAttributes_t`: what a mark or range says of itself. It borrows its message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventAttributes<'a> {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
    borrowed: PhantomData<&'a CStr>,
}

/// `NVTX_EVENT_ATTRIB_STRUCT_SIZE`.
const ATTRIBUTES_SIZE: u16 = 48;

const _: () = assert!(size_of::<EventAttributes<'_>>() == ATTRIBUTES_SIZE as usize, "the header's structure");

impl<'a> EventAttributes<'a> {
    /// Attributes with nothing but a text.
    #[must_use]
    pub fn new(message: &'a CStr) -> Self {
        Self::with_message(MESSAGE_ASCII, message.as_ptr().cast())
    }

    /// Attributes with nothing but a text that the tool knows.
    #[must_use]
    pub fn registered(message: StringHandle) -> Self {
        Self::with_message(MESSAGE_REGISTERED, message.0)
    }

    fn with_message(message_type: i32, message: *const c_void) -> Self {
        Self {
            version: NVTX_VERSION,
            size: ATTRIBUTES_SIZE,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
            borrowed: PhantomData,
        }
    }

    /// The same with a colour: alpha, red, green and blue, eight bits each, from the highest bits down.
    #[must_use]
    pub fn color(self, argb: u32) -> Self {
        Self { color_type: COLOR_ARGB, color: argb, ..self }
    }

    /// The same with a category, by which tools group. Zero is none.
    #[must_use]
    pub fn category(self, category: u32) -> Self {
        Self { category, ..self }
    }

    /// The same with a value of 64 bits, or of 32 in the lower half.
    #[must_use]
    pub fn payload(self, payload_type: PayloadType, bits: u64) -> Self {
        Self { payload_type: payload_type as i32, payload: bits, ..self }
    }
}

impl fmt::Debug for EventAttributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventAttributes")
            .field("category", &self.category)
            .field("color", &self.color)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// `NvtxFunctionTable`: for each function the place that the tool fills with its own.
pub(super) type FunctionTable = *const *const c_void;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub(super) struct Callbacks {
    pub(super) struct_size: usize,
    pub(super) get_module_function_table: unsafe extern "C" fn(u32, *mut FunctionTable, *mut u32) -> i32,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
pub(super) struct VersionInfo {
    pub(super) struct_size: usize,
    pub(super) version: u32,
    pub(super) reserved: u32,
    pub(super) set_injection_version: unsafe extern "C" fn(u32),
}

/// `InitializeInjectionNvtx2`, by which a tool is told where the places are.
pub(super) type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> i32;

/// A text of a thread, stream, device or category.
pub(super) type Text = *const c_char;

/// No handle.
pub(super) const NO_DOMAIN: DomainHandle = DomainHandle(ptr::null_mut());
