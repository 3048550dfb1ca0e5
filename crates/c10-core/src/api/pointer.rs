//! Addresses of any origin: what memory is there, and on which device.
//!
//! **Invariant:** the driver only looks an address up and never dereferences it, so any number may be given.

use crate::base::error::Result;
use crate::base::pointer::PointerInfo;
use crate::runtime::Runtime;

/// What can be given where an address is wanted: a number or a pointer, of the host or of a device. The pointer is
/// never dereferenced.
///
/// ```
/// use c10_core::PtrArg;
///
/// fn is_aligned(address: impl PtrArg) -> bool {
///     address.address().is_multiple_of(8)
/// }
/// assert!(is_aligned(&raw const *&1_u64) && is_aligned(16_usize) && !is_aligned(17_u64));
/// ```
pub trait PtrArg: sealed::Sealed {
    /// The address as a number.
    fn address(self) -> u64;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! addresses {
    ($([$($generic:ident)?] $from:ty, $value:ident => $address:expr;)*) => {$(
        impl$(<$generic>)? sealed::Sealed for $from {}
        impl$(<$generic>)? PtrArg for $from {
            fn address(self) -> u64 {
                let $value = self;
                $address
            }
        }
    )*};
}

addresses! {
    [] u64, number => number;
    [] usize, number => number as u64;
    [T] *const T, pointer => pointer.addr() as u64;
    [T] *mut T, pointer => pointer.addr() as u64;
}

impl PointerInfo {
    /// Asks the driver about an address; `None` for memory that is neither its own nor registered with it. Nothing is read
    /// there. Starts the runtime, and creates no context.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, PointerInfo, PointerKind, Runtime};
    ///
    /// let (buffer, plain) = (DeviceBuffer::new(100, None)?, [0_u8; 100]);
    /// let known = PointerInfo::of(&Runtime::current(), buffer.address())?.expect("it is the driver's");
    /// assert_eq!(known.kind, PointerKind::Device);
    /// assert_eq!(PointerInfo::of(&Runtime::current(), plain.as_ptr())?, None);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The runtime cannot start, or the driver's error.
    pub fn of(runtime: &Runtime, ptr: impl PtrArg) -> Result<Option<Self>> {
        runtime.ready()?.api.pointer(ptr.address())
    }
}
