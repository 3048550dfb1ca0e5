//! Containment of panics in callbacks of the program.
//!
//! A panic that unwinds into a C caller aborts the process. So does a second panic during unwinding, and a payload is a
//! value of the program whose `Drop` may panic too.
//!
//! **Invariant:** neither function of this module unwinds, whatever the program's destructors do.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Payloads in a chain of panicking destructors that [`discard`] drops before it leaks the next one.
const DROPPED_PAYLOADS: usize = 16;

/// Text of a panic that was caught. The payload itself is gone.
///
/// ```
/// use c10_core::panics::{CaughtPanic, caught};
///
/// assert_eq!(caught::<()>(|| panic!("no")), Err(CaughtPanic { text: "no".to_owned() }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtPanic {
    /// Text of the panic, or a placeholder if the payload is not a string.
    pub text: String,
}

/// Calls a function and catches its panic.
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

/// Drops a value and catches a panic of its destructor. The payload of that panic is dropped in the same way, and so are
/// the payloads of further panics, up to a limit: destructors can panic with new payloads for ever, and the payload that
/// exceeds the limit is leaked.
///
/// ```
/// struct Loud;
///
/// impl Drop for Loud {
///     fn drop(&mut self) {
///         panic!("dropped");
///     }
/// }
///
/// c10_core::panics::discard(Loud);
/// ```
pub fn discard<T>(value: T) {
    let mut panicked = catch_unwind(AssertUnwindSafe(|| drop(value))).err();
    for _ in 0..DROPPED_PAYLOADS {
        let Some(payload) = panicked else { return };
        panicked = catch_unwind(AssertUnwindSafe(|| drop(payload))).err();
    }
    let _ = ManuallyDrop::new(panicked);
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("with something that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panic payload whose destructor panics with another payload, this many times.
    struct Nested(u32);

    impl Drop for Nested {
        fn drop(&mut self) {
            if let Some(left) = self.0.checked_sub(1) {
                std::panic::resume_unwind(Box::new(Nested(left)));
            }
        }
    }

    /// Panic payload whose destructor panics with another one, without end. It takes no memory, so a leak is harmless.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Self));
        }
    }

    #[test]
    fn discarding_ends_although_every_payload_panics() {
        discard(Endless);
        assert!(caught::<()>(|| std::panic::resume_unwind(Box::new(Endless))).is_err());
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
