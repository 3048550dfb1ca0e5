//! Giving memory back, and the functions that `CUDAPluggableAllocator`'s setters take.
//!
//! None of them can answer with an error: PyTorch expects nothing back. What goes wrong is the last error's text.
//!
//! # Safety
//! PyTorch passes its own streams and filters; addresses are looked up before they are used.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use c10_core::{PoolId, Runtime, SegmentInfo};

use crate::filter::Filter;
pub use crate::filter::StdFunction;
use crate::last_error::{Failure, guarded};
use crate::streams;

/// Whether the process is ending: what is given back then goes with it.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Gives memory back, as `CUDAPluggableAllocator` does; null is ignored, and everything after
/// [`torch_allocator_shutdown`]. Size, device and stream are not needed. An address that is not handed out is the last
/// error and changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_free(address: *mut c_void, _size: usize, _device: c_int, _stream: *mut c_void) {
    if IS_OVER.load(Ordering::Acquire) {
        return;
    }
    guarded("torch_allocator_free", || Ok(Runtime::current().memory().free(number(address))?));
}

/// From now on nothing is given back any more; for the end of the interpreter.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_shutdown() {
    IS_OVER.store(true, Ordering::Release);
}

/// Starts the runtime; for `set_init_fn`. PyTorch calls it with 0 before it has counted its devices.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_init(device_count: c_int) {
    guarded("torch_allocator_init", || if device_count > 0 { Ok(Runtime::current().init()?) } else { Ok(()) });
}

/// Gives unused memory back to the driver; for `set_reset_fn`, which is PyTorch's `empty_cache`.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_reset() {
    guarded("torch_allocator_reset", || Ok(Runtime::current().memory().empty_cache()?));
}

/// Limits a device's memory to a fraction from 0 to 1; for `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_memory_fraction(fraction: f64, device: c_int) {
    guarded("torch_allocator_memory_fraction", || {
        Ok(Runtime::current().memory().set_fraction(fraction, streams::device(device)?)?)
    });
}

/// The segment that `address` lies in, and its size in bytes; for `set_base_alloc_fn`. Null, and 0, for an address that
/// is in none.
///
/// # Safety
/// `size` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_base_alloc(address: *mut c_void, size: *mut usize) -> *mut c_void {
    let address = number(address);
    let found = guarded("torch_allocator_base_alloc", || {
        let holds = |segment: &SegmentInfo| (segment.address..segment.address + segment.total_size).contains(&address);
        let segment = Runtime::current().memory().snapshot(None).into_iter().find(holds);
        segment.ok_or_else(|| Failure::Argument(format!("{address:#x} was not allocated here")))
    });
    let (base, total) = found.map_or((0, 0), |segment| (segment.address, segment.total_size));
    if !size.is_null() {
        // SAFETY: a place for a number.
        unsafe { size.write(usize::try_from(total).unwrap_or(usize::MAX)) };
    }
    usize::try_from(base).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// Notes that memory is used on another stream; for `set_record_stream_fn`.
///
/// # Safety
/// `stream` is a stream of PyTorch's, or null, and lives until the memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_record_stream(address: *mut c_void, stream: *mut c_void) {
    let address = number(address);
    guarded("torch_allocator_record_stream", || {
        if address == 0 {
            return Ok(());
        }
        // SAFETY: as for this function.
        let stream = unsafe { streams::of_use(stream, address) }?;
        Ok(Runtime::current().memory().record_stream(address, &stream)?)
    });
}

/// From now on serves requests of the streams that `filter` takes from a pool; for `set_begin_allocate_to_pool`. The
/// pool's name is passed in two registers, as C++ passes a pair of numbers.
///
/// # Safety
/// `filter` is null or points to a function as [`StdFunction`] describes it, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_begin_allocate_to_pool(
    device: c_int,
    first: u64,
    second: u64,
    filter: *const StdFunction,
) {
    guarded("torch_allocator_begin_allocate_to_pool", || {
        // SAFETY: as for this function.
        let filter = unsafe { Filter::copy(filter) }?;
        let runtime = Runtime::current();
        let takes = move |handle| filter.takes(handle);
        Ok(runtime.mem_pools().begin_allocate_where(streams::device(device)?, PoolId(first, second), takes)?)
    });
}

/// Ends what [`torch_allocator_begin_allocate_to_pool`] began; for `set_end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_end_allocate_to_pool(device: c_int, first: u64, second: u64) {
    guarded("torch_allocator_end_allocate_to_pool", || {
        Ok(Runtime::current().mem_pools().end_allocate(streams::device(device)?, PoolId(first, second))?)
    });
}

/// Gives one use of a pool up; for `set_release_pool`.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_release_pool(device: c_int, first: u64, second: u64) {
    guarded("torch_allocator_release_pool", || {
        Ok(Runtime::current().mem_pools().release(streams::device(device)?, PoolId(first, second))?)
    });
}

fn number(address: *mut c_void) -> u64 {
    address.addr() as u64
}
