//! Groups of calls of a thread: they begin at the end of the group, at once.
//!
//! **Invariants:** a group ends also where what is called in it fails or panics. Tensors of its calls are held until then,
//! since their work is queued then; so is what keeps communicators alive.

use std::cell::RefCell;
use std::sync::Arc;

use c10_core::Runtime;
use cuda_sys::Nccl;

use super::library::{self, Handle};
use crate::base::error::Result;
use crate::tensor::Tensor;

/// What a thread's group holds.
#[derive(Debug, Default)]
struct Open {
    depth: u32,
    handles: Vec<Arc<Handle>>,
    /// Ranks that wait for others to join.
    joining: Vec<Arc<Handle>>,
    held: Vec<Tensor>,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

/// Runs calls of communicators as one group (`ncclGroupStart`, `ncclGroupEnd`): they begin together at its end, so that
/// messages in both directions, and calls for several devices by one thread, do not wait for each other. Groups nest; the
/// outermost counts.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::nccl::{self, Communicator};
/// use aten_cuda::{DType, Tensor};
///
/// let comms = Communicator::init_all(&[0, 1])?;
/// let mine = [Tensor::full(&[2], 1, DType::F32, "cuda:0")?, Tensor::full(&[2], 2, DType::F32, "cuda:1")?];
/// let theirs = [Tensor::zeros(&[2], DType::F32, "cuda:0")?, Tensor::zeros(&[2], DType::F32, "cuda:1")?];
/// nccl::group(|| {
///     for rank in 0..2 {
///         comms[rank].send(&mine[rank], 1 - rank)?;
///         comms[rank].recv(&theirs[rank], 1 - rank)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!((theirs[0].to_vec::<f32>()?, theirs[1].to_vec::<f32>()?), (vec![2.0; 2], vec![1.0; 2]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// What `body` returns; there is no NCCL; a call was refused, or its ranks were not connected in the communicator's time.
pub fn group<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    let library = Runtime::with_current(library::find)?;
    let open = Group::begin(library)?;
    let done = body();
    let ended = open.end(done.is_ok());
    let done = done?;
    ended.map(|()| done)
}

/// A group under way.
struct Group {
    library: Arc<Nccl>,
    is_ended: bool,
}

impl Group {
    fn begin(library: Arc<Nccl>) -> Result<Self> {
        library::begin_group(&library)?;
        OPEN.with_borrow_mut(|open| open.depth += 1);
        Ok(Self { library, is_ended: false })
    }

    fn end(mut self, is_whole: bool) -> Result<()> {
        self.is_ended = true;
        self.close(is_whole)
    }

    /// Ends the group. Where it is not whole, ranks may have been left out, and nobody waits for them to join; NCCL neither.
    fn close(&self, is_whole: bool) -> Result<()> {
        let waits = |open: &mut Open| open.joining.iter().any(|handle| handle.connects_by_waiting());
        if !is_whole && OPEN.with_borrow_mut(waits) {
            library::spoil_group(&self.library);
        }
        let ended = library::end_group(&self.library);
        let whole = OPEN.with_borrow_mut(|open| {
            open.depth -= 1;
            (open.depth == 0).then(|| std::mem::take(open))
        });
        let Some(open) = whole else { return ended.map(drop) };
        open.handles.iter().for_each(|handle| handle.leave_group());
        if ended? {
            open.handles.iter().try_for_each(|handle| handle.complete("ncclGroupEnd", handle.timeout))?;
        }
        if is_whole { self.settle(&open.joining) } else { Ok(()) }
    }

    /// Waits until ranks have joined. What calls go to is split off by all of them at once.
    fn settle(&self, joining: &[Arc<Handle>]) -> Result<()> {
        if joining.is_empty() {
            return Ok(());
        }
        joining.iter().try_for_each(|handle| handle.settle())?;
        library::begin_group(&self.library)?;
        let begun = joining.iter().try_for_each(|handle| handle.begin_calls());
        let ended = library::end_group(&self.library);
        begun.and(ended)?;
        joining.iter().try_for_each(|handle| handle.settle_calls(handle.timeout))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_ended {
            // What was called has panicked, and that is what is told.
            let _ = self.close(false);
        }
    }
}

/// Lets the thread's group wait at its end until a rank has joined; `false` where there is no group.
pub(super) fn join_later(handle: &Arc<Handle>) -> bool {
    OPEN.with_borrow_mut(|open| {
        if open.depth > 0 {
            open.joining.push(Arc::clone(handle));
        }
        open.depth > 0
    })
}

/// Lets the thread's group hold what a call uses; `false` where there is none.
pub(super) fn hold(handle: &Arc<Handle>, tensors: [Option<&Tensor>; 2]) -> bool {
    OPEN.with_borrow_mut(|open| {
        if open.depth == 0 {
            return false;
        }
        if !open.handles.iter().any(|known| Arc::ptr_eq(known, handle)) {
            handle.enter_group();
            open.handles.push(Arc::clone(handle));
        }
        open.held.extend(tensors.into_iter().flatten().cloned());
        true
    })
}
