//! Memory of a resource, and streams as resources see them.
//!
//! **Invariant:** safe code gets an [`Allocation`] only from a resource and can give it back once, since it is neither copied
//! nor made from an address.
//!
//! # Safety
//! Nothing is called here. [`Allocation::from_raw`] is unsafe because safe code reads and writes memory that is made of it.
#![expect(unsafe_code, reason = "a function whose caller answers for the memory at an address")]

use std::fmt;

use crate::base::device::DeviceIndex;
use crate::base::error::Error;
use crate::base::handles::StreamRef;

/// Device memory of a resource: an address, a number of bytes, a device. Dropping it gives nothing back.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, MemoryResource, Runtime, Stream};
///
/// let (memory, stream) = (DriverResource::new(&Runtime::current()), Stream::new(None, 0)?);
/// let taken = memory.allocate(1000, stream.view())?;
/// assert_eq!((taken.bytes(), taken.device(), taken.address() % 512), (1000, 0.into(), 0));
/// memory.deallocate(taken, stream.view())?;
/// assert_eq!(memory.allocate(0, stream.view())?.address(), 0, "no bytes need no memory");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(PartialEq, Eq)]
#[must_use = "memory that is not deallocated stays taken"]
pub struct Allocation {
    address: u64,
    bytes: u64,
    device: DeviceIndex,
}

impl Allocation {
    /// For sources inside the crate, which take memory from the driver or cut what they were given.
    pub(crate) fn new(address: u64, bytes: u64, device: DeviceIndex) -> Self {
        Self { address, bytes, device }
    }

    /// No bytes of a device, at address 0.
    pub fn empty(device: DeviceIndex) -> Self {
        Self { address: 0, bytes: 0, device }
    }

    /// Memory that a source took from somewhere.
    ///
    /// ```
    /// use c10_core::{Allocation, MemoryResource, NotDeallocated, Result, StreamView};
    ///
    /// /// One piece of memory that somebody else owns.
    /// #[derive(Debug)]
    /// struct Lent(u64);
    ///
    /// impl MemoryResource for Lent {
    ///     fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
    ///         // SAFETY: nobody reads this memory in the example.
    ///         Ok(unsafe { Allocation::from_raw(self.0, bytes, stream.device()) })
    ///     }
    ///
    ///     fn deallocate(&self, memory: Allocation, _: StreamView) -> Result<(), NotDeallocated> {
    ///         Ok(drop(memory))
    ///     }
    /// }
    /// # let _ = Lent(1 << 40);
    /// ```
    ///
    /// # Safety
    /// The device can read and write `bytes` bytes at `address`, a multiple of 512, and nobody else uses them until this
    /// value has been given back.
    pub unsafe fn from_raw(address: u64, bytes: u64, device: DeviceIndex) -> Self {
        Self { address, bytes, device }
    }

    /// Its first byte; 0 for no bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes were asked for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Device it is on.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocation {{ {} bytes at {:#x} of device {} }}", self.bytes, self.address, self.device)
    }
}

/// Memory that a resource did not take back, and why.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, Error, MemoryError, MemoryResource, Runtime, Stream};
///
/// let stream = Stream::new(None, 0)?;
/// let [one, other] = [(); 2].map(|()| DriverResource::new(&Runtime::current()));
/// let memory = one.allocate(1000, stream.view())?;
/// let refused = other.deallocate(memory, stream.view()).unwrap_err();
/// assert!(matches!(refused.error, Error::Memory(MemoryError::InvalidPointer { .. })));
/// one.deallocate(refused.memory, stream.view())?;
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(PartialEq, Eq, Debug)]
pub struct NotDeallocated {
    /// The memory, which is still taken.
    pub memory: Allocation,
    /// Why.
    pub error: Error,
}

impl fmt::Display for NotDeallocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotDeallocated {}

/// Forgets the memory, which stays taken.
impl From<NotDeallocated> for Error {
    fn from(refused: NotDeallocated) -> Self {
        refused.error
    }
}

/// A stream without a share in it: [`Stream::view`](crate::Stream::view).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let stream = c10_core::Stream::new(None, 0)?;
/// assert_eq!((stream.view().device(), stream.view().cuda_stream()), (0.into(), stream.cuda_stream()));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamView(pub(crate) StreamRef);

impl StreamView {
    /// Device of the stream.
    #[must_use]
    pub fn device(self) -> DeviceIndex {
        self.0.device
    }

    /// The driver's handle as a number; 0 for the default stream.
    #[must_use]
    pub fn cuda_stream(self) -> usize {
        self.0.handle.0
    }
}

impl fmt::Debug for StreamView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamView {{ {:?} of device {} }}", self.0.handle, self.0.device)
    }
}
