//! A small kernel, for the runtime and for the raw driver: what the graphs of the bench are made of.
//!
//! # Safety
//! The kernel adds 1 to the [`THREADS`] numbers that its one argument points to; both launches give it memory of
//! [`BYTES`] bytes that outlives the work.
#![expect(unsafe_code, reason = "a launch of a kernel whose text is below")]

use cuda_api::{DeviceBuffer, Error, Kernel, LaunchConfig, Module, Runtime, Stream};

/// Threads of the one block.
pub(crate) const THREADS: u32 = 128;
/// Bytes that it works on.
pub(crate) const BYTES: usize = THREADS as usize * 4;
/// The kernel's name, as C has it.
pub(crate) const NAME: &std::ffi::CStr = c"increment";

/// The kernel.
pub(crate) const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.visible .entry increment(.param .u64 data)
{
    .reg .b32 %thread, %value;
    .reg .b64 %data, %offset, %at;
    ld.param.u64 %data, [data];
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.s64 %at, %data, %offset;
    ld.global.u32 %value, [%at];
    add.u32 %value, %value, 1;
    st.global.u32 [%at], %value;
    ret;
}
";

/// The kernel, loaded, and what it works on.
#[derive(Debug)]
pub(crate) struct Increment {
    kernel: Kernel,
    data: DeviceBuffer,
}

impl Increment {
    /// Loads the kernel.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn new(stream: &Stream) -> Result<Self, Error> {
        let runtime = Runtime::current();
        let kernel = Module::from_ptx(&runtime, stream.device_index(), TEXT)?.kernel("increment")?;
        let data = runtime.memory().buffer(BYTES, stream)?;
        data.fill(0..BYTES, 0, stream)?;
        Ok(Self { kernel, data })
    }

    /// Queues it.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the argument is that of the text, and the buffer has a number for each thread.
        unsafe { self.kernel.launch(&LaunchConfig::linear(THREADS, THREADS), &[(&self.data).into()], stream) }
    }

    /// How often it ran.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn count(&self) -> Result<u32, Error> {
        let mut bytes = [0; 4];
        self.data.copy_to_slice(0, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
