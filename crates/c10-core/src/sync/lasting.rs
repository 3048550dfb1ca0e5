//! Handles of a value that is either counted or never goes.
//!
//! Threads that count one value's handles up and down at the same time pass its cache line around, which costs far more
//! than anything they look up through it. A value kept in a static need not be counted: its handles are plain references.
//!
//! **Invariant:** a counted value is dropped with its last handle; a value that never goes is not dropped.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A handle.
pub(crate) enum Lasting<T: 'static> {
    Counted(Arc<T>),
    Forever(&'static T),
}

/// A handle that does not keep the value.
pub(crate) enum WeakLasting<T: 'static> {
    Counted(Weak<T>),
    Forever(&'static T),
}

impl<T> Lasting<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::Counted(Arc::new(value))
    }

    /// A handle that is not counted, of a handle that never goes.
    #[inline]
    pub(crate) fn forever(kept: &'static Self) -> Self {
        Self::Forever(kept)
    }

    pub(crate) fn downgrade(&self) -> WeakLasting<T> {
        match self {
            Self::Counted(value) => WeakLasting::Counted(Arc::downgrade(value)),
            Self::Forever(value) => WeakLasting::Forever(value),
        }
    }
}

impl<T> WeakLasting<T> {
    pub(crate) fn upgrade(&self) -> Option<Lasting<T>> {
        match self {
            Self::Counted(value) => value.upgrade().map(Lasting::Counted),
            Self::Forever(value) => Some(Lasting::Forever(value)),
        }
    }
}

impl<T> Deref for Lasting<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Counted(value) => value,
            Self::Forever(value) => value,
        }
    }
}

impl<T> Clone for Lasting<T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Counted(value) => Self::Counted(Arc::clone(value)),
            Self::Forever(value) => Self::Forever(value),
        }
    }
}

impl<T> fmt::Debug for WeakLasting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[test]
    fn what_never_goes_is_not_counted() {
        static KEPT: OnceLock<Lasting<u32>> = OnceLock::new();
        let counted = Lasting::new(7);
        let Lasting::Counted(value) = counted.clone() else { panic!("a new value is counted") };
        let kept = KEPT.get_or_init(|| counted);
        let before = Arc::strong_count(&value);
        let handles: Vec<_> = (0..10).map(|_| Lasting::forever(kept).clone()).collect();
        let weak = handles[0].downgrade();
        assert_eq!(Arc::strong_count(&value), before);
        drop(handles);
        assert_eq!(weak.upgrade().as_deref(), Some(&7));
    }

    #[test]
    fn what_is_counted_goes_with_its_last_handle() {
        let first = Lasting::new(7);
        let (second, weak) = (first.clone(), first.downgrade());
        drop(first);
        assert_eq!(weak.upgrade().as_deref(), Some(&7));
        drop(second);
        assert!(weak.upgrade().is_none());
    }
}
