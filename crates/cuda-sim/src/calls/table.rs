//! Tables of further functions, asked for by an identity of 16 bytes.
//!
//! NVIDIA's libraries get unnamed functions from the driver. This driver has none of their tables and answers like a
//! driver that is too old for them; each library then works without them or reports what is missing. The simulator has
//! two tables of its own: one identifies the driver as simulated; through the other an allocator of the program reports
//! its blocks while a check needs them.

use std::ffi::c_void;
use std::ptr;

use cuda_sys::driver::types::CUuuid;
use cuda_sys::driver::{BLOCK_TABLE_ID, SIMULATED_TABLE_ID};

use super::blocks;
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE};

/// A table: its identity, where it is, and whether a machine has it. It must live as long as the process.
struct Table {
    id: CUuuid,
    table: fn() -> *const c_void,
    is_there: fn(&Call<'_>) -> bool,
}

/// The tables there are.
const TABLES: &[Table] = &[
    Table {
        id: BLOCK_TABLE_ID,
        table: || ptr::from_ref(&blocks::TABLE).cast(),
        is_there: |call| call.config.checks.need_blocks(),
    },
    Table { id: SIMULATED_TABLE_ID, table: || ptr::from_ref(&SIMULATED).cast(), is_there: |_| true },
];

/// Table that identifies a simulated driver: its size.
static SIMULATED: usize = size_of::<usize>();

pub(crate) fn get(call: &mut Call<'_>, table: Ptr<*const c_void>, id: Ptr<CUuuid>) -> Answer {
    table.required()?;
    let id = id.read()?.bytes;
    let found = TABLES.iter().find(|known| known.id.bytes == id && (known.is_there)(call));
    let found = found.map(|found| (found.table)());
    table.write(found.unwrap_or(ptr::null()))?;
    if found.is_some() { Ok(()) } else { Err(INVALID_VALUE) }
}
