//! Calls of any driver function with every argument zero: null pointers, null handles, zero sizes.

use cuda_sys::CUresult;

/// A C function that can be called with nothing but zeros.
pub(super) trait ZeroCall {
    /// Calls the function with every argument zero.
    ///
    /// # Safety
    /// - The function must be one that answers null pointers with an error.
    unsafe fn zero_call(self) -> CUresult;
}

macro_rules! zero_call {
    ($($argument:ident)*) => {
        impl<$($argument),*> ZeroCall for unsafe extern "C" fn($($argument),*) -> CUresult {
            unsafe fn zero_call(self) -> CUresult {
                // SAFETY: arguments of C functions are plain data for which zero is a value; the call itself is the
                // caller's promise.
                unsafe { self($(std::mem::zeroed::<$argument>()),*) }
            }
        }
    };
}
zero_call!();
zero_call!(A);
zero_call!(A B);
zero_call!(A B C);
zero_call!(A B C D);
zero_call!(A B C D E);
zero_call!(A B C D E F);
zero_call!(A B C D E F G);
zero_call!(A B C D E F G H);
zero_call!(A B C D E F G H I);
zero_call!(A B C D E F G H I J);
zero_call!(A B C D E F G H I J K);
