//! Panics of the program's functions, where none may leave.
//!
//! A panic that reaches a caller in C ends the process. So does a second one while the first is unwound, or a panic of a
//! destructor behind a guard: a payload is a value of the program too, whose `Drop` may panic.
//!
//! **Invariant:** neither function here unwinds, whatever the program's values do when they are dropped.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic that was caught, with its text. The payload is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtPanic {
    /// The text of the panic, or what stands for a payload that is no text.
    pub text: String,
}

/// Calls a function, and catches its panic.
///
/// ```
/// use c10_core::panics::caught;
///
/// assert_eq!(caught(|| 1), Ok(1));
/// assert_eq!(caught::<()>(|| panic!("no")).unwrap_err().text, "no");
/// ```
///
/// # Errors
/// The function panicked.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = text_of(&*payload).to_owned();
        discard(payload);
        CaughtPanic { text }
    })
}

/// Drops a value; a panic of its destructor ends here.
pub fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // Its destructor may panic again, and so on: it is never called.
        let _ = ManuallyDrop::new(payload);
    }
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("with something that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload whose destructor panics with another one, so many times.
    struct Nested(u32);

    impl Drop for Nested {
        fn drop(&mut self) {
            if let Some(left) = self.0.checked_sub(1) {
                std::panic::resume_unwind(Box::new(Nested(left)));
            }
        }
    }

    #[test]
    fn payloads_that_panic_when_they_are_dropped_do_not_unwind() {
        for depth in 0..4 {
            let panicked = caught::<()>(|| std::panic::resume_unwind(Box::new(Nested(depth)))).unwrap_err();
            assert_eq!(panicked.text, "with something that is no text");
            discard(Nested(depth));
        }
    }
}
