//! A launch that is described step by step.
//!
//! # Safety
//! The last step passes the caller's promise on to [`Kernel::launch`].
#![expect(unsafe_code, reason = "a launch of a kernel that is somebody else's")]

use std::fmt;

use crate::api::arg::StreamArg;
use crate::api::launch::{Arg, Begin, Kernel, LaunchConfig, MemoryAccess};
use crate::api::stream::Stream;
use crate::base::error::Result;

/// Sizes of a grid or a block along three axes. One, two or three numbers convert into it.
///
/// ```
/// use c10_core::Dim3;
///
/// assert_eq!([Dim3::from(8), (8, 1).into(), (8, 1, 1).into()], [Dim3([8, 1, 1]); 3]);
/// assert_eq!(Dim3::from((4, 2)).to_string(), "(4, 2, 1)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3(pub [u32; 3]);

impl fmt::Display for Dim3 {
    /// As CUDA's programmers write it: `(2, 1, 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "({x}, {y}, {z})")
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(sizes: [u32; 3]) -> Self {
        Self(sizes)
    }
}

/// A launch of a kernel, described step by step; made by [`Kernel::launch_builder`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceSlice, Module, Runtime};
///
/// let text = "
///     .version 7.8
///     .target sm_75
///     .address_size 64
///     .visible .entry set(.param .u64 to, .param .u32 value)
///     {
///         .reg .b64 %to, %at;
///         .reg .b32 %value, %thread;
///         ld.param.u64 %to, [to];
///         ld.param.u32 %value, [value];
///         mov.u32 %thread, %tid.x;
///         mul.wide.u32 %at, %thread, 4;
///         add.s64 %to, %to, %at;
///         st.global.u32 [%to], %value;
///         ret;
///     }";
/// let kernel = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("set")?;
/// let numbers = DeviceSlice::<u32>::zeros(4, None)?;
/// // SAFETY: the kernel writes one number for each thread, and the slice has as many.
/// unsafe { kernel.launch_builder(None).block(4).arg(&numbers).arg(7_u32).launch()? };
/// assert_eq!(numbers.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "nothing is queued before `launch`"]
#[derive(Clone)]
pub struct LaunchBuilder<'a> {
    kernel: &'a Kernel,
    stream: Option<Stream>,
    config: LaunchConfig,
    arguments: Vec<Arg<'a>>,
    declared: Vec<Arg<'a>>,
}

impl Kernel {
    /// Begins a launch of one thread without arguments, on a stream or, for `None`, on the current one of the kernel's
    /// device.
    pub fn launch_builder(&self, stream: impl StreamArg) -> LaunchBuilder<'_> {
        LaunchBuilder {
            kernel: self,
            stream: stream.stream(),
            config: LaunchConfig::default(),
            arguments: Vec::new(),
            declared: Vec::new(),
        }
    }
}

impl<'a> LaunchBuilder<'a> {
    /// Blocks, by axis.
    pub fn grid(mut self, blocks: impl Into<Dim3>) -> Self {
        self.config.grid = blocks.into().0;
        self
    }

    /// Threads of a block, by axis.
    pub fn block(mut self, threads: impl Into<Dim3>) -> Self {
        self.config.block = threads.into().0;
        self
    }

    /// As many blocks of `threads` threads in a row as `elements` take; see [`LaunchConfig::linear`].
    pub fn cover(mut self, elements: u32, threads: u32) -> Self {
        self.config = LaunchConfig::linear(elements, threads).shared(self.config.shared_bytes);
        self
    }

    /// Bytes of shared memory of each block, besides those that the kernel declares.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.config.shared_bytes = bytes;
        self
    }

    /// The next argument.
    pub fn arg(mut self, argument: impl Into<Arg<'a>>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The next arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = Arg<'a>>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Declares that the kernel reads a buffer, a slice or a range of one ([`Arg::range`]), be it an argument or not. It is
    /// noted as used on the stream; the stream sanitizer ([`crate::Runtime::enable_sanitizer`]) compares it with what
    /// other work does.
    ///
    /// ```
    /// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
    /// use c10_core::{Arg, DeviceBuffer, Module, Runtime, SanitizerOptions};
    ///
    /// # let text = ".version 7.8 .target sm_75 .address_size 64
    /// #     .visible .entry nothing(.param .u64 a) { ret; }";
    /// let runtime = Runtime::current();
    /// let kernel = Module::from_ptx(&runtime, 0, text)?.kernel("nothing")?;
    /// let (buffer, other) = (DeviceBuffer::new(1024, None)?, runtime.streams().pooled(0, 0)?);
    /// runtime.synchronize(0.into())?;
    /// let sanitizer = runtime.enable_sanitizer(SanitizerOptions::ranges());
    /// let half = Arg::range(&buffer, 512..);
    /// // SAFETY: the kernel does nothing.
    /// unsafe { kernel.launch_builder(None).arg(&buffer).writes(half).launch()? };
    /// // SAFETY: the kernel does nothing.
    /// unsafe { kernel.launch_builder(&other).arg(&buffer).reads(Arg::range(&buffer, ..512)).launch()? };
    /// // SAFETY: the kernel does nothing.
    /// let raced = unsafe { kernel.launch_builder(&other).arg(&buffer).reads(&buffer).launch() };
    /// assert_eq!(raced.unwrap_err().to_string(), "detected 1 errors");
    /// assert_eq!(sanitizer.count(), 1);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    pub fn reads(self, memory: impl Into<Arg<'a>>) -> Self {
        self.declares(memory.into(), MemoryAccess::Reads(""))
    }

    /// Declares that the kernel writes a buffer, a slice or a range of one, and may read it; see [`Self::reads`].
    pub fn writes(self, memory: impl Into<Arg<'a>>) -> Self {
        self.declares(memory.into(), MemoryAccess::Writes(""))
    }

    /// A name that was declared before stays.
    fn declares(mut self, memory: Arg<'a>, access: MemoryAccess) -> Self {
        let access = match (memory.access(), access) {
            (MemoryAccess::Reads(name) | MemoryAccess::Writes(name), MemoryAccess::Reads(_)) => {
                MemoryAccess::Reads(name)
            }
            (MemoryAccess::Reads(name) | MemoryAccess::Writes(name), _) => MemoryAccess::Writes(name),
            _ => access,
        };
        self.declared.push(memory.accessed(access));
        self
    }

    /// Queues the launch. Returns before the launch is done.
    ///
    /// # Safety
    /// - The duties of [`Kernel::launch`].
    ///
    /// # Errors
    /// As for [`Kernel::launch`].
    pub unsafe fn launch(self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            self.kernel.launch_on(&self.config, (&self.arguments, &self.declared), self.stream.as_ref(), Begin::InOrder)
        }
    }
}

impl fmt::Debug for LaunchBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchBuilder {{ {}{}, {} arguments }}", self.kernel.name(), self.config, self.arguments.len())
    }
}
