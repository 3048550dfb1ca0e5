//! A bound on how many threads do something at once.
//!
//! **Invariant:** there are as many places as there were at first, free or taken: one that is dropped is free again, also
//! after a panic.

use std::sync::PoisonError;

use super::{Condvar, Mutex, lock};

/// Places of which each thread takes one, or waits for it.
pub(crate) struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that is taken until this is dropped.
pub(crate) struct Place<'a>(&'a Places);

impl Places {
    /// So many places, all of them free; at least one.
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count.max(1)), freed: Condvar::new() }
    }

    /// Takes a place as soon as one is free.
    pub(crate) fn take(&self) -> Place<'_> {
        let mut free =
            self.freed.wait_while(lock(&self.free), |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::Places;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let (places, inside, most) = (Places::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        let three = Barrier::new(3);
        let work = || {
            let _place = places.take();
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // However slowly threads begin, three meet; a fourth would have the time to come.
            three.wait();
            thread::sleep(Duration::from_millis(5));
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| (0..12).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_panic_frees_its_place() {
        let places = Places::new(0);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            let _place = places.take();
            panic!("a thread that fails");
        }));
        assert!(failed.is_err());
        drop(places.take());
    }
}
