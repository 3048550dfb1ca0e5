//! What crates above keep for a runtime: a value for each type, made when it is first asked for.
//!
//! **Invariants:** a value is made once and lives as long as the runtime. It must not hold the runtime itself, or
//! neither would ever go; [`DetachedKernel`](crate::DetachedKernel) is for kernels.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::sync::RwLock;

/// The values, by their types. There are few, so a search from the front is the fastest.
#[derive(Default)]
pub(super) struct Extensions(RwLock<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>);

impl Extensions {
    /// The value of a type.
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let find = |values: &[(TypeId, Arc<dyn Any + Send + Sync>)]| {
            let found = values.iter().find(|(id, _)| *id == TypeId::of::<T>());
            found.and_then(|(_, value)| Arc::clone(value).downcast::<T>().ok())
        };
        if let Some(known) = find(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&values) {
            return known;
        }
        let made = Arc::new(T::default());
        values.push((TypeId::of::<T>(), Arc::<T>::clone(&made)));
        made
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Extensions").field("count", &count).finish()
    }
}
