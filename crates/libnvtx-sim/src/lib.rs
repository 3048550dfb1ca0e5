//! A tool that attaches itself by NVTX as profilers do, and writes a line for each call.
//!
//! A program is run with `NVTX_INJECTION64_PATH` naming this object and `NVTX_SIM_LOG` naming the file to write.
//! `NVTX_SIM_REFUSE` makes it refuse to start. Depths of ranges are counted by thread, as Nsight Systems counts them.
//!
//! It follows the documented protocol on the tool's side and shares no code with the other side.
//!
//! # Safety
//! NVTX passes texts that end with a zero byte, structures of the documented layout, and tables whose entries are places
//! for functions of the documented signatures.
#![expect(unsafe_code, reason = "exports C functions and fills a table of C functions")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

thread_local! {
    static DEPTH: Cell<i32> = const { Cell::new(0) };
}

fn log(line: std::fmt::Arguments<'_>) {
    let Some(log) = LOG.get() else { return };
    let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
    // A test reads the file and misses the line then.
    let _ = writeln!(file, "{line}");
}

fn text(message: *const c_char) -> String {
    // SAFETY: NVTX passes texts that end with a zero byte.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

fn describe(attributes: *const Attributes) -> String {
    // SAFETY: NVTX passes a structure of this layout.
    let Attributes { version, size, category, color_type, color, payload_type, payload, message_type, message, .. } =
        unsafe { &*attributes };
    let message = if *message_type == 3 { format!("registered {}", message.addr()) } else { text(*message) };
    let color = if *color_type == 1 { format!(" color {color:08x}") } else { String::new() };
    let payload = if *payload_type == 0 { String::new() } else { format!(" payload {payload_type}:{payload:x}") };
    format!("{message:?} v{version} {size} bytes category {category}{color}{payload}")
}

fn pushed() -> i32 {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    depth
}

fn popped() -> i32 {
    let depth = DEPTH.get() - 1;
    DEPTH.set(depth.max(0));
    depth
}

fn next_range() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A handle that no other call has got.
fn next_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

extern "C" fn mark(message: *const c_char) {
    log(format_args!("mark {:?}", text(message)));
}

extern "C" fn mark_ex(attributes: *const Attributes) {
    log(format_args!("mark_ex {}", describe(attributes)));
}

extern "C" fn push(message: *const c_char) -> i32 {
    log(format_args!("push {:?}", text(message)));
    pushed()
}

extern "C" fn pop() -> i32 {
    log(format_args!("pop"));
    popped()
}

extern "C" fn start(message: *const c_char) -> u64 {
    let id = next_range();
    log(format_args!("start {id} {:?}", text(message)));
    id
}

extern "C" fn end(id: u64) {
    log(format_args!("end {id}"));
}

extern "C" fn name_category(category: u32, name: *const c_char) {
    log(format_args!("category {category} {:?}", text(name)));
}

extern "C" fn name_thread(thread: u32, name: *const c_char) {
    log(format_args!("thread {} {:?}", if thread == 0 { "without number" } else { "numbered" }, text(name)));
}

extern "C" fn name_device(device: i32, name: *const c_char) {
    log(format_args!("device {device} {:?}", text(name)));
}

extern "C" fn name_stream(stream: usize, name: *const c_char) {
    log(format_args!("stream {} {:?}", if stream == 0 { "default" } else { "other" }, text(name)));
}

extern "C" fn domain_create(name: *const c_char) -> usize {
    let handle = next_handle();
    log(format_args!("domain {handle} {:?}", text(name)));
    handle
}

extern "C" fn domain_destroy(domain: usize) {
    log(format_args!("domain {domain} ends"));
}

extern "C" fn domain_mark(domain: usize, attributes: *const Attributes) {
    log(format_args!("domain {domain} mark {}", describe(attributes)));
}

extern "C" fn domain_push(domain: usize, attributes: *const Attributes) -> i32 {
    log(format_args!("domain {domain} push {}", describe(attributes)));
    pushed()
}

extern "C" fn domain_pop(domain: usize) -> i32 {
    log(format_args!("domain {domain} pop"));
    popped()
}

extern "C" fn domain_start(domain: usize, attributes: *const Attributes) -> u64 {
    let id = next_range();
    log(format_args!("domain {domain} start {id} {}", describe(attributes)));
    id
}

extern "C" fn domain_end(domain: usize, id: u64) {
    log(format_args!("domain {domain} end {id}"));
}

extern "C" fn domain_category(domain: usize, category: u32, name: *const c_char) {
    log(format_args!("domain {domain} category {category} {:?}", text(name)));
}

extern "C" fn domain_text(domain: usize, message: *const c_char) -> usize {
    let handle = next_handle();
    log(format_args!("domain {domain} text {handle} {:?}", text(message)));
    handle
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    module_table: extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> i32,
}

/// Puts functions into the table of a module: each has the number that the header gives it.
fn fill(callbacks: &Callbacks, module: u32, functions: &[(usize, *const c_void)]) -> bool {
    let (mut table, mut size) = (std::ptr::null(), 0);
    if (callbacks.module_table)(module, &mut table, &mut size) == 0 {
        return false;
    }
    for &(number, function) in functions {
        if number >= size as usize {
            return false;
        }
        // SAFETY: the table has `size` entries.
        let entry = unsafe { table.add(number) };
        // SAFETY: as above.
        let place = unsafe { entry.read() };
        // SAFETY: the entry is the place of a function.
        unsafe { place.write(function) };
    }
    true
}

/// Where a program's NVTX tells a tool of itself.
///
/// # Safety
/// - `export_table` must be the function that NVTX's documentation describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(export_table: extern "C" fn(u32) -> *const c_void) -> i32 {
    let Some(path) = std::env::var_os("NVTX_SIM_LOG") else { return 0 };
    if std::env::var_os("NVTX_SIM_REFUSE").is_some() {
        return 0;
    }
    let Ok(file) = OpenOptions::new().create(true).append(true).open(path) else { return 0 };
    let _ = LOG.set(Mutex::new(file));
    let callbacks = export_table(1).cast::<Callbacks>();
    // SAFETY: NVTX gives null or the table of callbacks, which lives as long as the process.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }) else { return 0 };
    if callbacks.struct_size < size_of::<Callbacks>() {
        return 0;
    }
    let core: [(usize, *const c_void); 8] = [
        (1, mark_ex as *const c_void),
        (2, mark as *const c_void),
        (5, start as *const c_void),
        (7, end as *const c_void),
        (9, push as *const c_void),
        (11, pop as *const c_void),
        (12, name_category as *const c_void),
        (14, name_thread as *const c_void),
    ];
    let cuda = [(1, name_device as *const c_void), (5, name_stream as *const c_void)];
    let core2: [(usize, *const c_void); 9] = [
        (1, domain_mark as *const c_void),
        (2, domain_start as *const c_void),
        (3, domain_end as *const c_void),
        (4, domain_push as *const c_void),
        (5, domain_pop as *const c_void),
        (8, domain_category as *const c_void),
        (10, domain_text as *const c_void),
        (12, domain_create as *const c_void),
        (14, domain_destroy as *const c_void),
    ];
    i32::from(fill(callbacks, 1, &core) && fill(callbacks, 2, &cuda) && fill(callbacks, 5, &core2))
}
