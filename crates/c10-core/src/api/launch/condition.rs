//! A kernel that sets the condition of a conditional node.
//!
//! # Safety
//! The one launch is of the text below: it has two parameters of 8 bytes, of which the second is the address that it
//! reads four bytes at.
#![expect(unsafe_code, reason = "a launch of a kernel of our own")]

use crate::api::launch::own::own_kernel;
use crate::api::stream::Stream;
use crate::base::error::Result;
use crate::driver::{Shape, Value};
use crate::runtime::Runtime;

/// Reads a number and makes it the value of a condition. The driver provides the function that is called.
const TEXT: &std::ffi::CStr = c"\
.version 7.8
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_condition(.param .u64 condition, .param .u64 place)
{
    .reg .b64 %condition, %place;
    .reg .b32 %value;
    .param .b64 handle_given;
    .param .b32 value_given;
    ld.param.u64 %condition, [condition];
    ld.param.u64 %place, [place];
    ld.global.u32 %value, [%place];
    st.param.b64 [handle_given], %condition;
    st.param.b32 [value_given], %value;
    call.uni cudaGraphSetConditional, (handle_given, value_given);
    ret;
}
";

/// Records a launch that sets a condition to the number at an address, which is inside a buffer that the capture keeps
/// and a multiple of 4.
pub(crate) fn launch_set_condition(runtime: &Runtime, condition: u64, address: u64, stream: &Stream) -> Result<()> {
    let ready = runtime.ready()?;
    let function = own_kernel(ready, stream.device_index(), TEXT, c"set_condition")?;
    let shape = Shape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    // SAFETY: the kernel has two parameters of 8 bytes; what it reads is inside a buffer, as the caller has checked.
    unsafe { ready.api.launch(function, shape, &[Value::Word(condition), Value::Word(address)], stream.reference()) }
}
