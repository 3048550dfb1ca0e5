//! Why code could not be loaded, and why a launch was refused.

use std::fmt;

use crate::base::device::DeviceIndex;
use crate::base::error::{AcceleratorError, Error};

/// Why code could not be loaded or a kernel not be found.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Module, Runtime};
///
/// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let refused = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("something").unwrap_err();
/// assert_eq!(refused.to_string(), "the module has no kernel named 'something'");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// The driver refused the code; for PTX its compiler said why.
    #[error("the driver refuses the module: {} ({}){}", .error.text(), .error.name().unwrap_or("unknown code"), Log(.log))]
    Refused {
        /// The driver's answer.
        error: AcceleratorError,
        /// What the compiler wrote; empty when it wrote nothing.
        log: String,
    },
    /// There is no code in an image.
    #[error("the image of a module has no bytes")]
    Empty,
    /// The text has a zero byte inside.
    #[error("the text of a module holds a zero byte")]
    ZeroByte,
    /// The module has no kernel of a name.
    #[error("the module has no kernel named '{name}'")]
    NoKernel {
        /// The name.
        name: String,
    },
}

impl ModuleError {
    /// The driver's answer, where it was the driver that refused.
    #[must_use]
    pub fn accelerator(&self) -> Option<&AcceleratorError> {
        if let Self::Refused { error, .. } = self { Some(error) } else { None }
    }
}

struct Log<'a>(&'a str);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n{}", self.0) }
    }
}

impl From<ModuleError> for Error {
    fn from(error: ModuleError) -> Self {
        Self::Module(Box::new(error))
    }
}

/// A launch that was refused before anything was queued.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Module, Runtime};
///
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let kernel = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("nothing")?;
/// // SAFETY: the kernel does nothing.
/// let refused = unsafe { kernel.launch_builder(None).arg(1_u32).launch() }.unwrap_err();
/// assert!(matches!(&refused, Error::Launch(error) if error.kernel == "nothing"));
/// assert_eq!(refused.to_string(), "kernel 'nothing': 1 arguments, but the kernel has 0 parameters");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{kernel}': {kind}")]
pub struct LaunchError {
    /// The kernel.
    pub kernel: String,
    /// What is wrong.
    pub kind: LaunchErrorKind,
}

/// What is wrong with a launch.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, LaunchErrorKind, Module, Runtime};
///
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let kernel = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("nothing")?;
/// // SAFETY: the kernel does nothing.
/// let refused = unsafe { kernel.launch_builder(None).block(0).launch() };
/// let Err(Error::Launch(error)) = refused else { panic!("a block has at least one thread") };
/// assert!(matches!(error.kind, LaunchErrorKind::Dimensions { what: "block", sizes: [0, 1, 1], .. }));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchErrorKind {
    /// An argument or the stream is of another device than the kernel.
    #[error("the {what} is of device {found}, but the kernel is on device {expected}")]
    Device {
        /// What it is.
        what: &'static str,
        /// The kernel's device.
        expected: DeviceIndex,
        /// The other one.
        found: DeviceIndex,
    },
    /// Grid or block has no elements along an axis, or too many.
    #[error("a {what} of {sizes:?} is not within 1 and {limits:?}")]
    Dimensions {
        /// `grid` or `block`.
        what: &'static str,
        /// The sizes asked for.
        sizes: [u32; 3],
        /// The largest of the device.
        limits: [u32; 3],
    },
    /// A block has more threads than the kernel can have.
    #[error("a block of {threads} threads, but the kernel can have {limit}")]
    Threads {
        /// Threads asked for.
        threads: u64,
        /// The most.
        limit: u32,
    },
    /// More shared memory than a launch may ask for, or than a block can have.
    #[error("{asked} bytes of dynamic shared memory, but there may be {limit}")]
    SharedMemory {
        /// Bytes asked for.
        asked: u32,
        /// The most.
        limit: u32,
    },
    /// Not as many arguments as the kernel has parameters.
    #[error("{found} arguments, but the kernel has {expected} parameters")]
    ArgumentCount {
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// An argument of another size than its parameter.
    #[error("argument {index} has {found} bytes, but the parameter has {expected}")]
    ArgumentSize {
        /// Which one, counted from 0.
        index: usize,
        /// Bytes of the parameter.
        expected: usize,
        /// Bytes of the argument.
        found: usize,
    },
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        Self::Launch(Box::new(error))
    }
}
