//! What an allocator of the program tells of its blocks, by the table that [`super::table`] gives out.

use cuda_sys::CUresult;
use cuda_sys::driver::BlockTable;
use cuda_sys::driver::types::{CUcontext, CUdeviceptr, CUstream};

use crate::call::Call;
use crate::codes::{Answer, INVALID_CONTEXT, INVALID_VALUE};
use crate::door;
use crate::model::Birth;

/// The table.
pub(super) static TABLE: BlockTable = BlockTable { size: size_of::<BlockTable>(), handed_out, given_back };

extern "C" fn handed_out(context: CUcontext, stream: CUstream, address: CUdeviceptr, bytes: usize) -> CUresult {
    door::tell(|call| {
        let stream = call.stream_of(context.addr() as u64, stream.addr() as u64)?;
        call.hand_out_block(stream, address, bytes as u64)
    })
}

extern "C" fn given_back(address: CUdeviceptr) -> CUresult {
    door::tell(|call| {
        let (died, oldest) = (call.engine.next(), call.engine.oldest());
        call.memory.blocks.give_back(address, died, oldest);
        Ok(())
    })
}

impl Call<'_> {
    /// A block was handed out for use on a stream.
    fn hand_out_block(&mut self, stream: u64, address: u64, bytes: u64) -> Answer {
        let segment = self.segment_at(address).ok_or(INVALID_VALUE)?;
        let (born, is_kept) = (self.engine.next(), self.stream(stream)?.capturing.is_some());
        self.memory.blocks.hand_out(segment, address, bytes, born, is_kept);
        if self.config.checks.uninitialized {
            let after = self.predecessors(stream)?;
            match after.is_empty() {
                true => self.memory.forget_written(address, bytes),
                false => self.births.push_back(Birth { address, length: bytes, after }),
            }
        }
        Ok(())
    }

    /// What the program has in one piece around an address, as first address and length.
    fn segment_at(&self, address: u64) -> Option<(u64, u64)> {
        let reservation = self.vmm.reservation_at(address);
        reservation.or_else(|| self.known_range(address))
    }

    /// The stream that a handle names in a context.
    fn stream_of(&mut self, context: u64, handle: u64) -> Answer<u64> {
        let found = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
        let legacy = found.defaults.legacy;
        match handle {
            0 => Ok(legacy),
            _ => self.stream_named(handle),
        }
    }
}
