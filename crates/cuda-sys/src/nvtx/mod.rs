//! NVTX 3: marks and ranges that profilers show. The tool comes to the program, not the other way round.
//!
//! NVTX is a protocol and no library. A tool names a shared object in `NVTX_INJECTION64_PATH`; at the first call that
//! object is opened, and its `InitializeInjectionNvtx2` puts the tool's functions into places of this process.
//! Without the variable nothing is opened and each call costs one load.
//!
//! **Invariant:** a tool is looked for once in a process, and never unloaded once it is attached.
//!
//! Source: the header-only implementation of NVTX 3, whose layout of tables this follows.

mod slots;
mod types;

use std::cell::Cell;
use std::ffi::{CStr, OsString, c_void};
use std::mem::transmute;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::loader::text_of;
use slots::Function;
pub use types::{DomainHandle, EventAttributes, NVTX_NO_PUSH_POP_TRACKING, NVTX_VERSION, PayloadType, StringHandle};
use types::{Initialize, NO_DOMAIN, Text};

/// The variable that names a tool's shared object.
const VARIABLE: &str =
    if cfg!(target_pointer_width = "64") { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };

/// What came of looking for a tool.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attachment {
    /// The environment names no tool.
    NoTool,
    /// The tool of this file is attached.
    Attached(PathBuf),
    /// The tool of this file could not be attached, and why.
    Failed(PathBuf, String),
}

const FRESH: u8 = 0;
const STARTED: u8 = 1;
const WITHOUT: u8 = 2;
const ATTACHED: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(FRESH);
static ATTACHMENT: OnceLock<Attachment> = OnceLock::new();

thread_local! {
    /// Whether this thread is attaching a tool, which may call back while it starts.
    static ATTACHING: Cell<bool> = const { Cell::new(false) };
}

/// The tool that is attached to this process. The first call looks for one.
#[inline]
#[must_use]
pub fn tool() -> Option<Tool> {
    match STATE.load(Ordering::Acquire) {
        WITHOUT => None,
        ATTACHED => Some(Tool(())),
        _ => attach(),
    }
}

/// What came of looking for a tool, which this does if nothing did before. `None` while a tool is starting.
#[must_use]
pub fn attachment() -> Option<&'static Attachment> {
    let _ = tool();
    ATTACHMENT.get()
}

#[cold]
fn attach() -> Option<Tool> {
    if ATTACHING.get() {
        return None;
    }
    if STATE.compare_exchange(FRESH, STARTED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // Another thread is at it. A tool takes milliseconds to start.
        while STATE.load(Ordering::Acquire) == STARTED {
            std::thread::yield_now();
        }
        return tool();
    }
    ATTACHING.set(true);
    let found = look();
    ATTACHING.set(false);
    let state = if matches!(found, Attachment::Attached(_)) { ATTACHED } else { WITHOUT };
    if state == WITHOUT {
        slots::clear();
    }
    let _ = ATTACHMENT.set(found);
    STATE.store(state, Ordering::Release);
    tool()
}

fn look() -> Attachment {
    let named: Option<OsString> = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = named.map(PathBuf::from) else { return Attachment::NoTool };
    match start(&path) {
        Ok(()) => Attachment::Attached(path),
        Err(reason) => Attachment::Failed(path, reason),
    }
}

/// Opens a tool's file and lets it fill the places.
fn start(path: &std::path::Path) -> Result<(), String> {
    // SAFETY: the person who set the variable asks for the initialisers of this file to be run.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| text_of(&error))?;
    // SAFETY: the protocol gives the symbol of this name this signature.
    let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") };
    let initialize = *initialize.map_err(|_| "it has no function InitializeInjectionNvtx2".to_owned())?;
    // SAFETY: the tool is given the function by which the protocol lets it find the places.
    let answer = unsafe { initialize(slots::export_table) };
    if answer == 0 {
        return Err("its function InitializeInjectionNvtx2 refused".to_owned());
    }
    // The places hold addresses inside the library.
    let _ = Box::leak(Box::new(library));
    Ok(())
}

/// The tool that is attached. Its functions may be called from every thread.
#[derive(Debug, Clone, Copy)]
pub struct Tool(());

/// Calls a tool's function if it has one: `call!(Function, fn(arguments) -> result, (values))` is an `Option`.
macro_rules! call {
    ($function:ident, fn($($type:ty),*) $(-> $result:ty)?, ($($value:expr),*)) => {{
        let address = Function::$function.address();
        if address.is_null() {
            None
        } else {
            // SAFETY: the protocol gives the function in this place this signature.
            let function = unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>(address)
            };
            // SAFETY: texts end with a zero and structures are borrowed for the call; handles are the tool's own.
            Some(unsafe { function($($value),*) })
        }
    }};
}

impl Tool {
    /// `nvtxMarkA`.
    pub fn mark(self, message: &CStr) {
        call!(MarkA, fn(Text), (message.as_ptr()));
    }

    /// `nvtxMarkEx`.
    pub fn mark_ex(self, attributes: &EventAttributes<'_>) {
        call!(MarkEx, fn(*const EventAttributes<'_>), (attributes));
    }

    /// `nvtxRangePushA`: the depth of the new range, counted from zero.
    #[must_use]
    pub fn range_push(self, message: &CStr) -> i32 {
        call!(RangePushA, fn(Text) -> i32, (message.as_ptr())).unwrap_or(NVTX_NO_PUSH_POP_TRACKING)
    }

    /// `nvtxRangePop`: the depth of the range that ended.
    #[must_use]
    pub fn range_pop(self) -> i32 {
        call!(RangePop, fn() -> i32, ()).unwrap_or(NVTX_NO_PUSH_POP_TRACKING)
    }

    /// `nvtxRangeStartA`: the number of the new range; zero from a tool that has no such ranges.
    #[must_use]
    pub fn range_start(self, message: &CStr) -> u64 {
        call!(RangeStartA, fn(Text) -> u64, (message.as_ptr())).unwrap_or(0)
    }

    /// `nvtxRangeEnd`.
    pub fn range_end(self, id: u64) {
        call!(RangeEnd, fn(u64), (id));
    }

    /// `nvtxNameCategoryA`.
    pub fn name_category(self, category: u32, name: &CStr) {
        call!(NameCategoryA, fn(u32, Text), (category, name.as_ptr()));
    }

    /// `nvtxNameOsThreadA`.
    pub fn name_os_thread(self, thread: u32, name: &CStr) {
        call!(NameOsThreadA, fn(u32, Text), (thread, name.as_ptr()));
    }

    /// `nvtxNameCuDeviceA`.
    pub fn name_device(self, device: i32, name: &CStr) {
        call!(NameCuDeviceA, fn(i32, Text), (device, name.as_ptr()));
    }

    /// `nvtxNameCuStreamA`. A tool looks the handle up; it is not used otherwise.
    pub fn name_stream(self, stream: usize, name: &CStr) {
        call!(NameCuStreamA, fn(usize, Text), (stream, name.as_ptr()));
    }

    /// `nvtxDomainCreateA`. A tool without domains shows what is in them in that of the program.
    #[must_use]
    pub fn domain_create(self, name: &CStr) -> DomainHandle {
        call!(DomainCreateA, fn(Text) -> *mut c_void, (name.as_ptr())).map_or(NO_DOMAIN, DomainHandle)
    }

    /// `nvtxDomainDestroy`.
    ///
    /// # Safety
    /// - Neither the domain nor a text that was registered in it may be used again.
    pub unsafe fn domain_destroy(self, domain: &DomainHandle) {
        call!(DomainDestroy, fn(*mut c_void), (domain.0));
    }

    /// `nvtxDomainMarkEx`.
    pub fn domain_mark(self, domain: &DomainHandle, attributes: &EventAttributes<'_>) {
        call!(DomainMarkEx, fn(*mut c_void, *const EventAttributes<'_>), (domain.0, attributes));
    }

    /// `nvtxDomainRangePushEx`: the depth of the new range among those of the domain.
    #[must_use]
    pub fn domain_range_push(self, domain: &DomainHandle, attributes: &EventAttributes<'_>) -> i32 {
        call!(DomainRangePushEx, fn(*mut c_void, *const EventAttributes<'_>) -> i32, (domain.0, attributes))
            .unwrap_or(NVTX_NO_PUSH_POP_TRACKING)
    }

    /// `nvtxDomainRangePop`: the depth of the range that ended.
    #[must_use]
    pub fn domain_range_pop(self, domain: &DomainHandle) -> i32 {
        call!(DomainRangePop, fn(*mut c_void) -> i32, (domain.0)).unwrap_or(NVTX_NO_PUSH_POP_TRACKING)
    }

    /// `nvtxDomainRangeStartEx`: the number of the new range.
    #[must_use]
    pub fn domain_range_start(self, domain: &DomainHandle, attributes: &EventAttributes<'_>) -> u64 {
        call!(DomainRangeStartEx, fn(*mut c_void, *const EventAttributes<'_>) -> u64, (domain.0, attributes))
            .unwrap_or(0)
    }

    /// `nvtxDomainRangeEnd`.
    pub fn domain_range_end(self, domain: &DomainHandle, id: u64) {
        call!(DomainRangeEnd, fn(*mut c_void, u64), (domain.0, id));
    }

    /// `nvtxDomainNameCategoryA`.
    pub fn domain_name_category(self, domain: &DomainHandle, category: u32, name: &CStr) {
        call!(DomainNameCategoryA, fn(*mut c_void, u32, Text), (domain.0, category, name.as_ptr()));
    }

    /// `nvtxDomainRegisterStringA`: `None` from a tool that keeps no texts.
    #[must_use]
    pub fn domain_register_string(self, domain: &DomainHandle, text: &CStr) -> Option<StringHandle> {
        let handle = call!(DomainRegisterStringA, fn(*mut c_void, Text) -> *mut c_void, (domain.0, text.as_ptr()));
        handle.filter(|handle| !handle.is_null()).map(StringHandle)
    }
}
