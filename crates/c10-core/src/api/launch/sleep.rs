//! A kernel that waits for a number of clock cycles; torch's `_sleep`.
//!
//! # Safety
//! The one launch is of the text below: it has one parameter of 8 bytes, touches no memory and comes to an end, since
//! the clock goes on.
#![expect(unsafe_code, reason = "a launch of a kernel of our own")]

use crate::api::launch::own::own_kernel;
use crate::api::stream::Stream;
use crate::base::error::Result;
use crate::driver::{Shape, Value};

/// Reads the clock until so many cycles have passed.
const TEXT: &std::ffi::CStr = c"\
.version 7.8
.target sm_75
.address_size 64
.visible .entry wait_cycles(.param .u64 cycles)
{
    .reg .pred %early;
    .reg .b64 %wanted, %start, %now, %passed;
    ld.param.u64 %wanted, [cycles];
    mov.u64 %start, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.s64 %passed, %now, %start;
    setp.lt.s64 %early, %passed, %wanted;
    @%early bra again;
    ret;
}
";

/// Queues a kernel that takes at least so many clock cycles.
pub(crate) fn queue_sleep(stream: &Stream, cycles: i64) -> Result<()> {
    let ready = stream.ready()?;
    let explain = |error| ready.launches.explain(stream.device_index(), error);
    let function = own_kernel(ready, stream.device_index(), TEXT, c"wait_cycles").map_err(explain)?;
    let shape = Shape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    // SAFETY: the kernel has one parameter of 8 bytes and touches no memory.
    let queued =
        unsafe { ready.api.launch(function, shape, &[Value::Word(cycles.cast_unsigned())], stream.reference()) };
    queued.map_err(explain)
}
