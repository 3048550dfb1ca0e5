//! The driver, with its stream-ordered allocations served by the caching allocator of `c10-core`.
//!
//! A program that opens `libcuda.so`, as cudarc does, is given this file under that name; one that is linked with the driver,
//! as candle's are, gets it by `LD_PRELOAD`. It finds here the functions that allocate and free on streams; every other
//! function it asks for is the driver's own, since this library depends on `libcuda.so.1` and the system's loader looks
//! there next. Nothing of the program is changed.
//!
//! - `cuMemAllocAsync` takes memory from the allocator, for the stream's device; the default streams of threads, which have
//!   one name, are told apart. The driver itself serves what the allocator cannot: streams that capture, contexts that are
//!   not a device's primary one, requests for no bytes, and everything if the allocator cannot start.
//! - `cuMemFreeAsync` gives such memory back; it is used again on its stream at once, and on its own stream after what the
//!   freeing stream has queued if that is another. On a stream that captures it is refused, as by the driver.
//! - `cuMemFree_v2` waits for the device first, as the driver does.
//! - `cuMemGetAddressRange_v2` answers with what was asked for and not with the allocator's segment, and `cuIpcGetMemHandle`
//!   refuses, as the driver does for memory of a stream.
//! - `cuStreamDestroy_v2` waits for a stream that memory was used on, because the driver may give its handle to the
//!   next stream, which then gets the memory.
//! - `cuGetProcAddress` and `cuGetProcAddress_v2` name these functions instead of the driver's.
//!
//! Everything else that asks for memory, `cuMemAlloc_v2` and the memory pools among it, is the driver's.
//!
//! # Invariants
//! - An address is given back where it came from: to the allocator if it knows the address, else to the driver.
//! - Nothing unwinds into C. What cannot be done is a code of the driver's.
//! - The library exports names of the driver; it is opened in its place or loaded before it, and never linked.

mod addresses;
pub mod exports;
mod real;
mod serve;
mod streams;
mod threads;
