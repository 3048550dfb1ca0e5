//! Containment of panics in C callbacks.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function; returns `None` if it panicked.
///
/// The panic payload is a value of the program whose `Drop` may panic too; that panic is contained as well.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                let _ = ManuallyDrop::new(second);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::caught;

    struct Again;

    impl Drop for Again {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Self));
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_does_not_unwind() {
        assert_eq!(caught(|| 1), Some(1));
        assert!(caught::<()>(|| std::panic::resume_unwind(Box::new(Again))).is_none());
    }
}
