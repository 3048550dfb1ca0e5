//! Telling a driver which blocks the caching allocators have handed out, where it asks for that.
//!
//! A simulated driver that checks kernels exports a table of functions for this; a real driver does not. The table is
//! looked up once. A second table identifies simulated drivers.
//!
//! # Safety
//! The table belongs to the driver and lives as long as the process, as that of every `cuGetExportTable` does. Its functions
//! look up what they are given.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_void;
use std::ptr;

use cuda_sys::Driver as Table;
use cuda_sys::driver::{BLOCK_TABLE_ID, BlockTable, SIMULATED_TABLE_ID};

use crate::base::handles::StreamRef;
use crate::driver::Api;
use crate::driver::memory::raw;

/// A driver that asks to be told; none where it does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener(&'static BlockTable);

impl Listener {
    /// Looks whether the driver asks.
    pub(super) fn find(driver: &Table) -> Option<Self> {
        let mut table: *const c_void = ptr::null();
        // SAFETY: both pointers outlive the call.
        unsafe { driver.cuGetExportTable(&mut table, &BLOCK_TABLE_ID) }.ok()?;
        // SAFETY: null, or the table of this identity, which lives as long as the process.
        let table = unsafe { table.cast::<BlockTable>().as_ref() }?;
        (table.size >= size_of::<BlockTable>()).then_some(Self(table))
    }
}

/// Whether a driver is a simulated one.
pub(crate) fn is_simulated(driver: &Table) -> bool {
    let mut table: *const c_void = ptr::null();
    // SAFETY: both pointers outlive the call.
    let answer = unsafe { driver.cuGetExportTable(&mut table, &SIMULATED_TABLE_ID) };
    answer.is_ok() && !table.is_null()
}

impl Api {
    /// Whether the driver asks to be told of blocks.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some()
    }

    /// Tells that a block was handed out for use on a stream.
    pub(super) fn tell_block_handed_out(&self, address: u64, bytes: u64, stream: StreamRef) {
        // What the driver does not take is not checked; the program goes on all the same.
        if let Some(Listener(table)) = self.listener
            && let (Ok(context), Ok(bytes)) = (self.context(stream.device), usize::try_from(bytes))
        {
            // SAFETY: a function of the table, which looks up what it is given.
            let _ = unsafe { (table.handed_out)(context, raw(stream), address, bytes) };
        }
    }

    /// Tells that the block at an address was given back.
    pub(super) fn tell_block_given_back(&self, address: u64) {
        if let Some(Listener(table)) = self.listener {
            // SAFETY: as above.
            let _ = unsafe { (table.given_back)(address) };
        }
    }
}
