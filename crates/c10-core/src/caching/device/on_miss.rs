//! Who gives memory back where a request finds nothing cached, before the driver is asked for more; what torch calls a
//! free-memory callback.
//!
//! **Invariant:** it is called with no lock of the allocator held: what it gives back comes by the way of any free.

use std::fmt;
use std::sync::OnceLock;

/// What is called on a miss; nothing until somebody holds memory for others.
#[derive(Default)]
pub(crate) struct OnMiss(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl OnMiss {
    /// Has this called from now on, unless something is called already.
    pub(crate) fn set(&self, give_back: impl Fn() + Send + Sync + 'static) {
        self.0.get_or_init(|| Box::new(give_back));
    }

    /// What is to be called.
    pub(crate) fn get(&self) -> Option<&(dyn Fn() + Send + Sync)> {
        self.0.get().map(|give_back| &**give_back)
    }
}

impl fmt::Debug for OnMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnMiss").field(&self.0.get().is_some()).finish()
    }
}
