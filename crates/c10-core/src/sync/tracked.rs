//! Locks that track their holders in debug builds.
//!
//! [`Mutex`], [`RwLock`] and [`Condvar`] have the interface of the standard library's types; in a release build they
//! add nothing to them. With debug assertions each guard is registered on its thread, and [`assert_none_held`], which
//! is called before every driver call that waits for a device, panics if a guard is held. A thread that waited with a
//! lock held would deadlock if a host function on the stream needed this lock.
//!
//! **Invariant:** a thread that waits for a device, a process or a file holds no lock, except locks made by
//! [`Mutex::held_through_waits`], which host functions of a stream never take. A lock that is only taken by calls that
//! queue work, which host functions must not make, is the standard library's and is not tracked.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

#[cfg(debug_assertions)]
mod noted {
    use std::cell::{Cell, RefCell};
    use std::panic::Location;

    thread_local! {
        static HELD: RefCell<Vec<(u64, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
        static NEXT: Cell<u64> = const { Cell::new(1) };
    }

    /// Registration of a guard on its thread, until it is dropped. Number 0 is not registered.
    #[derive(Debug)]
    pub(crate) struct Held(u64);

    impl Held {
        #[track_caller]
        pub(crate) fn new(is_noted: bool) -> Self {
            // The thread-local registry is gone while the thread ends.
            let number = NEXT.try_with(|next| next.replace(next.get() + 1)).unwrap_or(0);
            let place = Location::caller();
            if is_noted && HELD.try_with(|held| held.borrow_mut().push((number, place))).is_ok() {
                Self(number)
            } else {
                Self(0)
            }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            if self.0 != 0 {
                let _ = HELD.try_with(|held| held.borrow_mut().retain(|(number, _)| *number != self.0));
            }
        }
    }

    pub(super) fn places() -> Vec<String> {
        HELD.try_with(|held| held.borrow().iter().map(|(_, place)| place.to_string()).collect()).unwrap_or_default()
    }
}

#[cfg(not(debug_assertions))]
mod noted {
    /// Empty in release builds.
    #[derive(Debug)]
    pub(crate) struct Held;

    impl Held {
        #[inline]
        pub(crate) fn new(_: bool) -> Self {
            Self
        }
    }
}

pub(crate) use noted::Held;

/// Checks, in builds with debug assertions, that this thread holds no tracked lock; `call` names the call that waits.
///
/// ```
/// use c10_core::locks::{Mutex, assert_none_held};
///
/// let mutex = Mutex::new(1);
/// drop(mutex.lock());
/// assert_none_held("cuStreamSynchronize");
/// ```
///
/// # Panics
/// With debug assertions, if this thread holds a tracked lock.
#[inline]
pub fn assert_none_held(call: &str) {
    #[cfg(debug_assertions)]
    {
        let places = noted::places();
        assert!(
            places.is_empty() || std::thread::panicking(),
            "{call} waits while this thread holds locks that were taken at {}",
            places.join(" and ")
        );
    }
    #[cfg(not(debug_assertions))]
    let _ = call;
}

/// [`std::sync::Mutex`] that is tracked while it is held.
///
/// ```
/// use c10_core::locks::Mutex;
///
/// let mutex = Mutex::new(1);
/// *mutex.lock().unwrap() += 1;
/// assert_eq!(*mutex.lock().unwrap(), 2);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    #[cfg(debug_assertions)]
    is_silent: bool,
    lock: sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            is_silent: false,
            lock: sync::Mutex::new(value),
        }
    }

    /// Makes a mutex that may be held while waiting for a device: host functions of a stream never take it. A comment
    /// at each call says why.
    pub const fn held_through_waits(value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            is_silent: true,
            lock: sync::Mutex::new(value),
        }
    }

    /// [`std::sync::Mutex::into_inner`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn into_inner(self) -> LockResult<T> {
        self.lock.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    #[track_caller]
    fn note(&self) -> Held {
        #[cfg(debug_assertions)]
        return Held::new(!self.is_silent);
        #[cfg(not(debug_assertions))]
        Held::new(true)
    }

    /// [`std::sync::Mutex::lock`].
    ///
    /// # Errors
    /// A holder panicked.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = |guard| MutexGuard { guard, held: self.note() };
        match self.lock.lock() {
            Ok(locked) => Ok(guard(locked)),
            Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
        }
    }

    /// [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// The lock is held, or a holder panicked.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = |guard| MutexGuard { guard, held: self.note() };
        match self.lock.try_lock() {
            Ok(locked) => Ok(guard(locked)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(guard(poisoned.into_inner()))))
            }
        }
    }

    /// [`std::sync::Mutex::get_mut`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.lock.get_mut()
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Guard of a [`Mutex`].
///
/// ```
/// use c10_core::locks::{Mutex, MutexGuard};
///
/// let mutex = Mutex::new(1);
/// let guard: MutexGuard<'_, i32> = mutex.lock().unwrap();
/// assert_eq!(*guard, 1);
/// ```
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    guard: sync::MutexGuard<'a, T>,
    held: Held,
}

/// [`std::sync::RwLock`] that is tracked while it is held.
///
/// ```
/// use c10_core::locks::RwLock;
///
/// let lock = RwLock::new(1);
/// *lock.write().unwrap() += 1;
/// assert_eq!(*lock.read().unwrap(), 2);
/// ```
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes an unlocked reader-writer lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// [`std::sync::RwLock::read`].
    ///
    /// # Errors
    /// A writer panicked.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let guard = |guard| RwLockReadGuard { guard, _held: Held::new(true) };
        match self.0.read() {
            Ok(locked) => Ok(guard(locked)),
            Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
        }
    }

    /// [`std::sync::RwLock::write`].
    ///
    /// # Errors
    /// A writer panicked.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let guard = |guard| RwLockWriteGuard { guard, _held: Held::new(true) };
        match self.0.write() {
            Ok(locked) => Ok(guard(locked)),
            Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Read guard of a [`RwLock`].
///
/// ```
/// use c10_core::locks::{RwLock, RwLockReadGuard};
///
/// let lock = RwLock::new(1);
/// let guard: RwLockReadGuard<'_, i32> = lock.read().unwrap();
/// assert_eq!(*guard, 1);
/// ```
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    guard: sync::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Write guard of a [`RwLock`].
///
/// ```
/// use c10_core::locks::{RwLock, RwLockWriteGuard};
///
/// let lock = RwLock::new(1);
/// let mut guard: RwLockWriteGuard<'_, i32> = lock.write().unwrap();
/// *guard = 2;
/// assert_eq!(*guard, 2);
/// ```
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    guard: sync::RwLockWriteGuard<'a, T>,
    _held: Held,
}

macro_rules! access {
    ($($guard:ident)*) => {
        $(
            impl<T: ?Sized> Deref for $guard<'_, T> {
                type Target = T;

                #[inline]
                fn deref(&self) -> &T {
                    &self.guard
                }
            }

            impl<T: fmt::Debug + ?Sized> fmt::Debug for $guard<'_, T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.guard.fmt(f)
                }
            }
        )*
    };
}

access!(MutexGuard RwLockReadGuard RwLockWriteGuard);

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// [`std::sync::Condvar`] for [`Mutex`].
///
/// ```
/// use c10_core::locks::{Condvar, Mutex};
///
/// let (ready, changed) = (Mutex::new(true), Condvar::new());
/// let guard = changed.wait_while(ready.lock().unwrap(), |ready| !*ready).unwrap();
/// assert!(*guard);
/// ```
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Makes a condition variable.
    #[must_use]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { guard, held } = guard;
        match self.0.wait(guard) {
            Ok(guard) => Ok(MutexGuard { guard, held }),
            Err(poisoned) => Err(PoisonError::new(MutexGuard { guard: poisoned.into_inner(), held })),
        }
    }

    /// [`std::sync::Condvar::wait_while`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { guard, held } = guard;
        match self.0.wait_while(guard, condition) {
            Ok(guard) => Ok(MutexGuard { guard, held }),
            Err(poisoned) => Err(PoisonError::new(MutexGuard { guard: poisoned.into_inner(), held })),
        }
    }

    /// [`std::sync::Condvar::wait_timeout`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, sync::WaitTimeoutResult)> {
        let MutexGuard { guard, held } = guard;
        match self.0.wait_timeout(guard, time) {
            Ok((guard, passed)) => Ok((MutexGuard { guard, held }, passed)),
            Err(poisoned) => {
                let (guard, passed) = poisoned.into_inner();
                Err(PoisonError::new((MutexGuard { guard, held }, passed)))
            }
        }
    }

    /// [`std::sync::Condvar::wait_timeout_while`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, sync::WaitTimeoutResult)> {
        let MutexGuard { guard, held } = guard;
        match self.0.wait_timeout_while(guard, time, condition) {
            Ok((guard, passed)) => Ok((MutexGuard { guard, held }, passed)),
            Err(poisoned) => {
                let (guard, passed) = poisoned.into_inner();
                Err(PoisonError::new((MutexGuard { guard, held }, passed)))
            }
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn is_refused() -> bool {
        catch_unwind(AssertUnwindSafe(|| assert_none_held("cuStreamSynchronize"))).is_err()
    }

    #[test]
    fn a_wait_under_a_lock_is_found() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(2));
        assert!(!is_refused());
        let first = mutex.lock().unwrap();
        let second = lock.read().unwrap();
        assert!(is_refused());
        drop(first);
        assert!(is_refused());
        drop(second);
        assert!(!is_refused());
        let third = lock.write().unwrap();
        assert!(is_refused());
        drop(third);
        let fourth = mutex.try_lock().unwrap();
        assert!(is_refused());
        drop(fourth);
        // A lock that may be held through waits, and a lock that another thread holds.
        let (allowed, other) = (Mutex::held_through_waits(3), mutex.lock().unwrap());
        let none_on_another = std::thread::scope(|scope| {
            let held = allowed.lock().unwrap();
            let answer = scope.spawn(is_refused).join().unwrap();
            drop(held);
            answer
        });
        drop(other);
        let held = allowed.lock().unwrap();
        assert!(!none_on_another && !is_refused());
        drop(held);
    }
}
