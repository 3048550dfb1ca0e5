//! A kernel for the example programs, written by hand as PTX, with a launch that is safe to call.
//!
//! # Safety
//! The kernel reads and writes element by element up to a count, and [`Axpy::launch`] gives it two buffers that have
//! that many elements.
#![expect(unsafe_code, reason = "a launch of a kernel whose text is below")]

use cuda_api::{DeviceBuffer, DeviceIndex, Error, Kernel, LaunchConfig, Module, Runtime, Stream};

use crate::checks::Failure;

/// `y[i] = a * x[i] + y[i]` for the first `n` elements.
const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .pred %end;
    .reg .b32 %block, %threads, %thread, %i, %n;
    .reg .b64 %y, %x, %bytes, %to, %from;
    .reg .f32 %a, %old, %value, %new;
    ld.param.u64 %y, [y];
    ld.param.u64 %x, [x];
    ld.param.f32 %a, [a];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %threads, %thread;
    setp.ge.u32 %end, %i, %n;
    @%end ret;
    mul.wide.u32 %bytes, %i, 4;
    add.s64 %to, %y, %bytes;
    add.s64 %from, %x, %bytes;
    ld.global.f32 %value, [%from];
    ld.global.f32 %old, [%to];
    fma.rn.f32 %new, %a, %value, %old;
    st.global.f32 [%to], %new;
    ret;
}
";

/// Threads of a block.
const THREADS: u32 = 256;

/// The kernel, loaded onto a device.
#[derive(Clone, Debug)]
pub struct Axpy(Kernel);

impl Axpy {
    /// Loads the kernel.
    ///
    /// # Errors
    /// The driver refuses it.
    pub fn new(device: DeviceIndex) -> Result<Self, Error> {
        Module::from_ptx(&Runtime::current(), device, TEXT)?.kernel("axpy").map(Self)
    }

    /// Queues `y = a * x + y`, both as numbers of 32 bits.
    ///
    /// # Errors
    /// The buffers differ in size, are of odd sizes or the same one, or the driver's error.
    pub fn launch(&self, y: &DeviceBuffer, x: &DeviceBuffer, a: f32, stream: &Stream) -> Result<(), Failure> {
        if y.len() != x.len() || !y.len().is_multiple_of(4) || y.address() == x.address() {
            return Err(format!("buffers of {} and {} bytes do not fit", y.len(), x.len()).into());
        }
        let count = u32::try_from(y.len() / 4)?;
        let arguments = [y.into(), x.into(), a.into(), count.into()];
        // SAFETY: the arguments are those of the text above, and both buffers have `count` elements.
        unsafe { self.0.launch(&LaunchConfig::linear(count, THREADS), &arguments, stream) }?;
        Ok(())
    }
}
