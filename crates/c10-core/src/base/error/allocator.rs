//! What can be wrong with an allocator that a program brings, and what memory resources refuse.

use std::fmt;

use crate::base::device::DeviceIndex;

/// What is wrong with an allocator that a program brings, or why a memory resource gives nothing.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{AllocatorError, DriverResource, Error, LimitResource, MemoryResource, Runtime, Stream};
///
/// let memory = LimitResource::new(DriverResource::new(&Runtime::current()), 100);
/// let refused = memory.allocate(101, Stream::new(None, 0)?.view()).unwrap_err();
/// assert_eq!(refused, Error::Allocator(AllocatorError::LimitReached { limit: 100, left: 100, requested: 101 }));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocatorError {
    /// The allocator was to be changed after the runtime had started.
    #[error("Can't swap an already initialized allocator")]
    AlreadyInitialized,
    /// A shared object could not be opened, or lacks a function.
    #[error(transparent)]
    Library(Box<PluginLoadError>),
    /// A function was given as address 0.
    #[error("the address of {function} is 0")]
    NullFunction {
        /// Which function.
        function: &'static str,
    },
    /// A function of the allocator panicked.
    #[error("{function} of the allocator panicked: {text}")]
    Panicked {
        /// Which function.
        function: &'static str,
        /// What it said.
        text: Box<str>,
    },
    /// The allocator gave memory that it had given before and that is still in use.
    #[error("the allocator gave memory at {address:#x} that is in use already")]
    GivenTwice {
        /// The memory, which was not used a second time.
        address: u64,
    },
    /// The allocator's answer about the whole allocation around an address does not contain that address.
    #[error("the allocator says that {address:#x} lies in {bytes} bytes at {base:#x}, which it does not")]
    WrongBase {
        /// The address it was asked about.
        address: u64,
        /// The answer.
        base: u64,
        /// Bytes of the answer.
        bytes: u64,
    },
    /// A source of memory to be pinned gave too little, or memory that begins inside a page.
    #[error(
        "the source of pinned memory gave {found} bytes at {address:#x}; asked for were {asked} from a page's begin on"
    )]
    UnusablePages {
        /// The memory, whose owner was dropped.
        address: u64,
        /// Its bytes.
        found: u64,
        /// Bytes asked for.
        asked: u64,
    },
    /// The allocator asked the runtime for memory while that waited for it.
    #[error("an allocator must not ask the runtime for memory that is about to give some to that runtime")]
    Reentered,
    /// There is no memory.
    #[error("CUDA out of memory. Tried to allocate {requested} bytes on device {device}")]
    NoMemory {
        /// The device.
        device: DeviceIndex,
        /// Bytes asked for.
        requested: u64,
    },
    /// A limit leaves less than was asked for.
    #[error("the limit of {limit} bytes leaves {left} of them, and {requested} were asked for")]
    LimitReached {
        /// Bytes that may be held.
        limit: u64,
        /// Bytes of them that are not.
        left: u64,
        /// Bytes asked for.
        requested: u64,
    },
    /// Memory was given back on another stream than the one it was allocated for.
    #[error("the memory at {address:#x} must be given back on the stream that it was allocated for")]
    OtherStream {
        /// The memory, which is still taken.
        address: u64,
    },
    /// A test made this call fail.
    #[error("call {call} of the resource was made to fail")]
    Injected {
        /// Number of the call.
        call: u64,
    },
}

impl AllocatorError {
    /// Whether there is no memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::NoMemory { .. } | Self::LimitReached { .. })
    }
}

/// Why a shared object cannot be an allocator.
///
/// ```
/// use c10_core::{AllocatorError, CUDAPluggableAllocator, Error};
///
/// // SAFETY: there is no such file, so no code of it runs.
/// let refused = unsafe { CUDAPluggableAllocator::new("/no/such.so", "my_malloc", "my_free") };
/// let Err(Error::Allocator(AllocatorError::Library(why))) = refused else { panic!("there is no such file") };
/// assert_eq!((why.path.as_str(), &why.symbol), ("/no/such.so", &None));
/// assert!(why.to_string().starts_with("/no/such.so cannot be opened: "));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginLoadError {
    /// The file.
    pub path: String,
    /// The function that it lacks; none where it could not be opened.
    pub symbol: Option<String>,
    /// What the system says.
    pub reason: String,
}

impl fmt::Display for PluginLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, symbol, reason } = self;
        match symbol {
            None => write!(f, "{path} cannot be opened: {reason}"),
            Some(symbol) => write!(f, "{path} has no function {symbol}: {reason}"),
        }
    }
}

impl std::error::Error for PluginLoadError {}
