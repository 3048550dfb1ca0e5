//! Casts of parameters that a thread keeps until it leaves the outermost region.
//!
//! **Invariants:** what is kept equals what a cast would give now. An entry is used only where its memory is that of the
//! same storage, from the same element on in the same order, and nothing that could have changed the parameter or could run
//! before the cast lies between: no operation has written to its storage, no graph was replayed, and the current stream is
//! the one that the cast was queued on. While the current stream captures nothing is taken or kept: what is captured runs
//! later, and again.

use std::cell::RefCell;
use std::collections::HashMap;

use c10_core::{Runtime, Stream, graph_replays};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::storage::{Watch, deferred};
use crate::tensor::Tensor;

/// What an entry is found by.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    first: u64,
    sizes: Dims,
    strides: Dims,
    to: DType,
}

/// A cast with what tells whether it is still right.
struct Entry {
    cast: Tensor,
    /// Over the storage of the parameter, which so lives as long.
    watch: Watch,
    replays: u64,
    /// The stream that the cast was queued on; none for the host.
    stream: Option<Stream>,
}

impl Entry {
    fn is_of(&self, parameter: &Tensor, stream: Option<&Stream>) -> bool {
        self.watch.storage().is_same(parameter.storage())
            && !self.watch.is_written()
            && self.replays == graph_replays()
            && self.stream.as_ref() == stream
    }
}

thread_local! {
    static KEPT: RefCell<HashMap<Key, Entry>> = RefCell::new(HashMap::new());
}

/// The cast of a parameter: the one that is kept, or a new one, which is kept from now on.
pub(super) fn cast(parameter: &Tensor, to: DType) -> Result<Tensor> {
    // A trace writes the cast down; what it becomes runs in each call.
    if deferred::is_tracing() {
        return parameter.to_dtype(to);
    }
    let stream = stream_of(parameter)?;
    if let Some(stream) = &stream
        && stream.capture_id()?.is_some()
    {
        return parameter.to_dtype(to);
    }
    let key =
        Key { first: parameter.data_ptr(), sizes: parameter.sizes().into(), strides: parameter.strides().into(), to };
    let known = KEPT.with_borrow(|kept| {
        kept.get(&key).filter(|entry| entry.is_of(parameter, stream.as_ref())).map(|entry| entry.cast.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    // Watched before it is read, so that no write falls between.
    let (watch, replays) = (Watch::new(parameter.storage()), graph_replays());
    let cast = parameter.to_dtype(to)?;
    let entry = Entry { cast: cast.clone(), watch, replays, stream };
    // What was there is dropped when the cells are no longer borrowed.
    let before = KEPT.with_borrow_mut(|kept| kept.insert(key, entry));
    drop(before);
    Ok(cast)
}

/// How many casts the thread keeps.
pub(super) fn len() -> usize {
    KEPT.with_borrow(HashMap::len)
}

/// Drops every cast that the thread keeps.
pub(super) fn clear() {
    // A thread that ends may have none any more.
    let kept = KEPT.try_with(|kept| kept.try_borrow_mut().map(|mut kept| std::mem::take(&mut *kept)));
    drop(kept);
}

fn stream_of(tensor: &Tensor) -> Result<Option<Stream>> {
    let Some(buffer) = tensor.storage().buffer() else { return Ok(None) };
    Ok(Some(Runtime::with_current(|runtime| runtime.streams().current(buffer.device_index()))?))
}
