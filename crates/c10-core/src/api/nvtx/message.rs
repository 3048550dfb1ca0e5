//! What may be given for a text of NVTX: it is made into a C string only if a tool reads it.

use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::{self, Write};

/// A text for a tool. A zero byte ends it, as in C.
///
/// `format_args!` is one as well, and is formatted only when a tool is attached:
///
/// ```
/// use c10_core::nvtx;
///
/// let step = 7;
/// nvtx::mark(format_args!("step {step}"));
/// nvtx::mark("the end");
/// ```
pub trait Message: sealed::Sealed {
    /// Calls a function with the text as a C string.
    #[doc(hidden)]
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &std::ffi::CStr {}
    impl Sealed for &str {}
    impl Sealed for &String {}
    impl Sealed for String {}
    impl Sealed for std::fmt::Arguments<'_> {}
}

impl Message for &CStr {
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R {
        f(self)
    }
}

impl Message for &str {
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R {
        format_args!("{self}").with(f)
    }
}

impl Message for &String {
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R {
        self.as_str().with(f)
    }
}

impl Message for String {
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R {
        self.as_str().with(f)
    }
}

impl Message for fmt::Arguments<'_> {
    fn with<R>(self, f: impl FnOnce(&CStr) -> R) -> R {
        thread_local! {
            /// The room in which this thread's texts are made. A text whose making asks for another finds it empty.
            static ROOM: Cell<String> = const { Cell::new(String::new()) };
        }
        // A thread that ends has no room any more.
        let mut text = ROOM.try_with(Cell::take).unwrap_or_default();
        text.clear();
        // An error of somebody's formatter leaves the text as far as it came.
        let _ = text.write_fmt(self);
        text.push('\0');
        let answer = f(CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or(c""));
        let _ = ROOM.try_with(|room| room.set(text));
        answer
    }
}
