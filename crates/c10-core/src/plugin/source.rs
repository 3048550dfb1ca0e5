//! An allocator of the program as the source of a memory pool's segments.
//!
//! **Invariant:** the pool's segments keep the allocator alive, so that each goes back to where it came from, whatever has
//! become of the pool object and of the program's handles.

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::caching::{Owner, SegmentSource};
use crate::plugin::CUDAPluggableAllocator;

impl SegmentSource for CUDAPluggableAllocator {
    fn alloc(&self, _: DeviceIndex, bytes: u64, stream: StreamRef) -> Result<u64> {
        self.take_memory(stream, bytes, Owner::Buffer).map(|given| given.unwrap_or(0))
    }

    fn free(&self, _: DeviceIndex, address: u64, _: u64) -> Result<()> {
        self.give_memory(address, Owner::Buffer)
    }
}
