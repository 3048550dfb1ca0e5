//! Tables of further functions, asked for by an identity of 16 bytes.
//!
//! NVIDIA's libraries get functions from the driver that have no names. This driver has none of their tables and says
//! so as a driver does that is too old for them; each library then does without, or says what is missing.

use std::ffi::c_void;

use cuda_sys::driver::types::CUuuid;

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE};

/// A table: its identity, and where it is. It must live as long as the process.
type Table = ([u8; 16], fn() -> *const c_void);

/// The tables there are. One of the simulated driver's own belongs here.
const TABLES: &[Table] = &[];

/// The table of an identity; none of an unknown one.
fn find(id: [u8; 16]) -> Option<*const c_void> {
    TABLES.iter().find(|(known, _)| *known == id).map(|(_, table)| table())
}

pub(crate) fn get(_: &mut Call<'_>, table: Ptr<*const c_void>, id: Ptr<CUuuid>) -> Answer {
    table.required()?;
    let found = find(id.read()?.bytes.map(|byte| byte.to_ne_bytes()[0]));
    table.write(found.unwrap_or(std::ptr::null()))?;
    if found.is_some() { Ok(()) } else { Err(INVALID_VALUE) }
}
