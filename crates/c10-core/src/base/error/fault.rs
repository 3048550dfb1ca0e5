//! What work on a device has done wrong: faults after which the device is lost, and what kernels refuse.

use std::fmt;
use std::sync::Arc;

use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{AcceleratorError, Error};

/// How many launches the text of an error names.
const NAMED: usize = 8;

/// A launch that was queued on a device.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{LaunchConfig, Module, Runtime};
///
/// let runtime = Runtime::current();
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let kernel = Module::from_ptx(&runtime, 0, text)?.kernel("nothing")?;
/// // SAFETY: the kernel does nothing.
/// unsafe { kernel.launch(&LaunchConfig::linear(1000, 256), &[], None)? };
/// let launched = &runtime.last_launches(0)?[0];
/// assert_eq!(launched.to_string(), "kernel 'nothing' with 4 x 1 x 1 blocks of 256 x 1 x 1 threads on stream 0x0");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Counts the launches on the device, from 1 on.
    pub number: u64,
    /// The device.
    pub device: DeviceIndex,
    /// The kernel's name, or that of another library's function, which has no sizes; `None` for the replay of a graph,
    /// which has none either.
    pub kernel: Option<Arc<str>>,
    /// The driver's handle of the stream, 0 for the default one.
    pub stream: u64,
    /// Blocks, by axis.
    pub grid: [u32; 3],
    /// Threads of a block, by axis.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl fmt::Display for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            // Other libraries do not tell how they launch.
            Some(function) if self.block == [0; 3] => f.write_str(function)?,
            Some(kernel) => {
                let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
                write!(f, "kernel '{kernel}' with {gx} x {gy} x {gz} blocks of {bx} x {by} x {bz} threads")?;
            }
            None => f.write_str("replay of a graph")?,
        }
        write!(f, " on stream {:#x}", self.stream)
    }
}

/// Work on a device has failed so that its context is lost, with the launches that came last.
///
/// The driver tells of such a fault at whichever call comes next, not at the launch that is to blame, and answers every
/// later call with it. One of the launches named here is likely the cause. With `CUDA_LAUNCH_BLOCKING=1` in the
/// environment every launch waits until it is done, and the error names it alone.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, LaunchConfig, Module, Runtime};
///
/// let text = "
///     .version 7.8
///     .target sm_75
///     .address_size 64
///     .visible .entry fail() { .reg .b64 %at; mov.u64 %at, 4096; st.global.u32 [%at], 0; ret; }";
/// let runtime = Runtime::current();
/// let kernel = Module::from_ptx(&runtime, 0, text)?.kernel("fail")?;
/// // SAFETY: no memory of anybody's lies at the address; the simulated device finds out.
/// unsafe { kernel.launch(&LaunchConfig::default(), &[], None)? };
/// let Err(Error::DeviceFault(fault)) = runtime.synchronize(0) else { panic!("the kernel fails") };
/// assert_eq!(fault.accelerator().name(), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
/// assert_eq!(fault.launches()[0].kernel.as_deref(), Some("fail"));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFaultError {
    pub(crate) error: AcceleratorError,
    pub(crate) device: DeviceIndex,
    pub(crate) launches: Vec<LaunchRecord>,
    pub(crate) is_certain: bool,
}

impl DeviceFaultError {
    /// The driver's answer.
    #[must_use]
    pub fn accelerator(&self) -> &AcceleratorError {
        &self.error
    }

    /// The device whose work was asked about.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// The last launches on the device, the newest first.
    #[must_use]
    pub fn launches(&self) -> &[LaunchRecord] {
        &self.launches
    }

    /// The launch that failed, where that is known: under `CUDA_LAUNCH_BLOCKING=1`.
    #[must_use]
    pub fn culprit(&self) -> Option<&LaunchRecord> {
        self.launches.first().filter(|_| self.is_certain)
    }
}

impl fmt::Display for DeviceFaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)?;
        let device = Device::cuda(self.device);
        if let Some(culprit) = self.culprit() {
            return write!(f, "The launch that failed on {device}: {culprit}");
        }
        if self.launches.is_empty() {
            return write!(f, "Nothing was launched on {device}.");
        }
        write!(f, "The last launches on {device}, the newest first:")?;
        self.launches.iter().take(NAMED).try_for_each(|launch| write!(f, "\n- {launch}"))
    }
}

impl std::error::Error for DeviceFaultError {}

/// What a kernel has refused while it ran, such as an index out of range. The device is not lost: the kernel left the
/// element out.
///
/// It is told by the next call that waits for the device. The crate that the kernel is of finds it there
/// ([`crate::Runtime::check_after_waiting`]); [`Self::cause`] is that crate's own error.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::sync::Arc;
///
/// use c10_core::{DeviceAssertionError, Error, Runtime};
///
/// let runtime = Runtime::current();
/// runtime.check_after_waiting(|device| {
///     let found = Arc::new(std::fmt::Error);
///     Some(DeviceAssertionError { device, operation: "gather", element: 3, value: "-1".into(), found })
/// });
/// let Err(Error::DeviceAssertion(refused)) = runtime.synchronize(0) else { panic!("the check has found something") };
/// assert_eq!((refused.operation, refused.value.as_str()), ("gather", "-1"));
/// assert!(refused.cause::<std::fmt::Error>().is_some());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceAssertionError {
    /// The device.
    pub device: DeviceIndex,
    /// The operation's name.
    pub operation: &'static str,
    /// Which element it was.
    pub element: i64,
    /// The value that was refused.
    pub value: String,
    /// The error in the words of the crate that the kernel is of.
    pub found: Arc<dyn std::error::Error + Send + Sync>,
}

impl DeviceAssertionError {
    /// The error of the crate that the kernel is of, if it is of this type.
    #[must_use]
    pub fn cause<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.found.downcast_ref()
    }
}

impl PartialEq for DeviceAssertionError {
    fn eq(&self, other: &Self) -> bool {
        let key = |error: &Self| (error.device, error.operation, error.element);
        key(self) == key(other) && self.value == other.value && self.to_string() == other.to_string()
    }
}

impl Eq for DeviceAssertionError {}

impl fmt::Display for DeviceAssertionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.found, f)
    }
}

impl std::error::Error for DeviceAssertionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.found)
    }
}

impl From<DeviceFaultError> for Error {
    fn from(error: DeviceFaultError) -> Self {
        Self::DeviceFault(Box::new(error))
    }
}

impl From<DeviceAssertionError> for Error {
    fn from(error: DeviceAssertionError) -> Self {
        Self::DeviceAssertion(Box::new(error))
    }
}
