//! Programs and kernels that are kept by key.
//!
//! Those of the crate's operations are finite in number and stay. Functions that a program makes at run time (`JitFunction`,
//! compiled functions) are not: of theirs the least recently used goes.
//!
//! **Invariant:** a number of [`Numbered`] names one program for as long as the process lives; a program that was
//! forgotten and comes back gets another number. So a key of a forgotten program never finds the kernel of another one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use c10_core::locks::RwLock;

use super::{Origin, ProgramKey};
use crate::base::recent::RecentMap;

/// The most programs, and for each runtime the most kernels, of functions that are kept. A kernel takes 19 to 30 KB.
pub(crate) const MOST_OF_FUNCTIONS: usize = 1024;

/// A key that tells whose program it belongs to.
pub(super) trait Owned {
    /// Whose program it is.
    fn origin(&self) -> Origin;
}

impl Owned for ProgramKey {
    fn origin(&self) -> Origin {
        self.origin
    }
}

/// Values by key, behind a lock.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    operations: RwLock<HashMap<K, V>>,
    functions: RwLock<RecentMap<K, V>>,
}

impl<K, V> Default for Kept<K, V>
where
    K: Owned + Eq + Hash + Clone,
{
    fn default() -> Self {
        Self { operations: RwLock::default(), functions: RwLock::new(RecentMap::new(MOST_OF_FUNCTIONS)) }
    }
}

impl<K: Owned + Eq + Hash + Clone, V: Clone> Kept<K, V> {
    /// Reads the value of a key.
    pub(super) fn read<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        match key.origin() {
            Origin::Operation => self.operations.read().unwrap_or_else(PoisonError::into_inner).get(key).map(read),
            Origin::Function | Origin::Fused => {
                self.functions.read().unwrap_or_else(PoisonError::into_inner).get(key).map(read)
            }
        }
    }

    /// Keeps a value unless another thread has kept one meanwhile. Returns the kept one.
    pub(super) fn keep(&self, key: K, value: V) -> V {
        match key.origin() {
            Origin::Operation => {
                let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
                operations.entry(key).or_insert(value).clone()
            }
            Origin::Function | Origin::Fused => {
                let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(known) = functions.get(&key) {
                    return known.clone();
                }
                let gone = functions.insert(key, value.clone());
                // Dropping a kernel retires its module, which takes another lock.
                drop(functions);
                drop(gone);
                value
            }
        }
    }
}

/// Numbers of equal programs, and one copy of each.
#[derive(Debug)]
pub(crate) struct Numbered<T>(Mutex<Numbers<T>>);

#[derive(Debug)]
struct Numbers<T> {
    known: RecentMap<Arc<T>, (u64, Arc<T>)>,
    next: u64,
}

impl<T: Eq + Hash> Default for Numbered<T> {
    fn default() -> Self {
        Self(Mutex::new(Numbers { known: RecentMap::new(MOST_OF_FUNCTIONS), next: 0 }))
    }
}

impl<T: Eq + Hash> Numbered<T> {
    /// The number of a program, and the copy that all equal programs share.
    pub(crate) fn number(&self, program: Arc<T>) -> (u64, Arc<T>) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, shared)) = numbers.known.get(&program) {
            return (*number, Arc::clone(shared));
        }
        let number = numbers.next;
        numbers.next += 1;
        let gone = numbers.known.insert(Arc::clone(&program), (number, Arc::clone(&program)));
        drop(numbers);
        drop(gone);
        (number, program)
    }
}
