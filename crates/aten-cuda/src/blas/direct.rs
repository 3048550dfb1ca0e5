//! The short way of small products: a kernel of this crate by a launch that was prepared.
//!
//! A library needs longer to queue a small product than the device to compute it. Here nothing has to be worked out but
//! where the memory is: each thread keeps what such products need, found by dtype and device.
//!
//! **Invariants:** which products go this way follows from dtypes, sizes and strides, and from settings that only a call
//! changes, so that a product has the same bits however it is asked for. The handle of cuBLAS is bound to the current
//! stream all the same, where there is one: its workspace stands in the memory statistics from the first product on, as
//! in torch.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use c10_core::{Device, DeviceBuffer, DeviceIndex, LibraryStream, Runtime};

use super::followed::Problem;
use super::library::handle::{Blas, Handle};
use super::library::workspace::Generation;
use super::settings::{self, BlasBackend};
use super::tune;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::launch::own_products::direct::{Direct, Numbers};
use crate::launch::record;
use crate::tensor::{Context, Tensor, storage_of};

/// The largest result and the longest sums that take a device no longer here than in a library.
const MOST_ELEMENTS: i64 = 128 * 128;
const MOST_STEPS: i64 = 64;

/// Whether a single product of these sizes may go this way.
pub(super) fn is_small(problem: &Problem) -> bool {
    let &Problem { m, k, n, dtype, .. } = problem;
    m.saturating_mul(n) <= MOST_ELEMENTS && k <= MOST_STEPS && Direct::serves(dtype)
}

/// What a product needs besides the memory.
struct Entry {
    dtype: DType,
    device: DeviceIndex,
    kernel: Direct,
    /// The thread's handle, where there is cuBLAS.
    handle: Option<Rc<Handle>>,
    generation: Generation,
    /// When the handle was looked for.
    looked: u64,
}

thread_local! {
    static ENTRIES_OF_THREAD: RefCell<Vec<Rc<Entry>>> = const { RefCell::new(Vec::new()) };
}

/// A product that goes this way: its numbers and the memory of the factors.
pub(super) struct Small<'a> {
    dtype: DType,
    device: DeviceIndex,
    numbers: Numbers,
    sizes: [i64; 2],
    factors: [Part<'a>; 2],
}

/// Bytes that a kernel uses.
type Part<'a> = (&'a DeviceBuffer, Range<usize>);

impl<'a> Small<'a> {
    /// `alpha * a @ b` of two matrices that fit each other, if that goes this way.
    #[inline]
    pub(super) fn of(a: &'a Tensor, b: &'a Tensor, alpha: f64) -> Option<Self> {
        let (&[m, k], &[_, n]) = (a.sizes(), b.sizes()) else { return None };
        let dtype = a.dtype();
        if record::is_on() || b.dtype() != dtype || !is_small(&Problem { m, k, n, is_batch: false, dtype }) {
            return None;
        }
        let (first, second) = (a.plain_storage().ok()?.buffer()?, b.plain_storage().ok()?.buffer()?);
        let device = first.device_index();
        if second.device_index() != device || !settings::asks_for(BlasBackend::Default) {
            return None;
        }
        let (numbers, [left, right]) = Numbers::of(a, b, None, alpha)?;
        let size = dtype.itemsize();
        let part = |tensor: &Tensor, extent: usize| tensor.byte_offset()..tensor.byte_offset() + extent * size;
        let factors = [(first, part(a, left)), (second, part(b, right))];
        Some(Self { dtype, device, numbers, sizes: [m, n], factors })
    }

    /// Bytes of the result.
    fn bytes(&self) -> usize {
        let [m, n] = self.sizes.map(|size| usize::try_from(size).unwrap_or(0));
        m * n * self.dtype.itemsize()
    }

    /// The result in a new tensor.
    #[inline]
    fn made(self) -> Result<Tensor> {
        let (sizes, dtype, bytes) = (self.sizes, self.dtype, self.bytes());
        let storage = storage_of(&sizes, dtype, bytes, Device::cuda(self.device))?;
        if let Some(buffer) = storage.buffer() {
            self.queue((buffer, 0..bytes))?;
        }
        Tensor::view_of(storage, dtype, Dims::from_slice(&sizes), Dims::from_slice(&[sizes[1], 1]), 0)
    }

    /// Writes the result to a contiguous tensor of its sizes and dtype on the same device.
    pub(super) fn write(self, out: &Tensor) -> Result<()> {
        let Some(buffer) = out.plain_storage()?.buffer() else { return Ok(()) };
        let start = out.byte_offset();
        let bytes = self.bytes();
        self.queue((buffer, start..start + bytes))
    }

    /// Queues the product on the current stream.
    #[inline]
    fn queue(self, out: Part<'_>) -> Result<()> {
        let Self { dtype, device, numbers, factors: [a, b], .. } = self;
        let parts = [out, a, b];
        Runtime::with_current(|runtime| {
            let stream = runtime.library_stream(device)?;
            match find(dtype, device).filter(|entry| entry.is_ready(runtime, stream)) {
                Some(entry) => entry.kernel.run(runtime, &parts, &numbers),
                None => with_new(runtime, (dtype, device), stream, |entry| entry.kernel.run(runtime, &parts, &numbers)),
            }
        })
    }
}

/// Makes the entry, binds the handle, and calls `run` while what it is bound to is there.
#[cold]
fn with_new(
    runtime: &Runtime,
    (dtype, device): (DType, DeviceIndex),
    stream: LibraryStream,
    run: impl FnOnce(&Entry) -> Result<()>,
) -> Result<()> {
    let blas = Blas::of(runtime);
    let generation = blas.workspaces.generation().clone();
    let looked = generation.now();
    let handle = blas.handle(runtime, device)?;
    let kernel = Direct::new(dtype, device)?;
    let entry = Rc::new(Entry { dtype, device, kernel, handle, generation, looked });
    let bind = |handle: &Rc<Handle>| runtime.with_library(device, || handle.bind(&blas, stream));
    let kept = entry.handle.as_ref().map(bind).transpose()?;
    let replaced = ENTRIES_OF_THREAD.with_borrow_mut(|entries| {
        let place = entries.iter().position(|known| (known.dtype, known.device) == (dtype, device));
        let replaced = place.map(|place| entries.swap_remove(place));
        entries.push(Rc::clone(&entry));
        replaced
    });
    // Dropped only here, after the borrow: unloading a module may look at this thread's entries again.
    drop(replaced);
    let done = run(&entry);
    drop(kept);
    done
}

impl Entry {
    /// Whether the entry is of this runtime, and the handle is bound to the stream.
    #[inline]
    fn is_ready(&self, runtime: &Runtime, stream: LibraryStream) -> bool {
        let is_bound = match &self.handle {
            Some(handle) => handle.is_bound(&self.generation, stream),
            None => self.generation.now() == self.looked,
        };
        is_bound && self.kernel.is_of(runtime)
    }
}

/// The entry of a dtype and a device, if this thread has one.
#[inline]
fn find(dtype: DType, device: DeviceIndex) -> Option<Rc<Entry>> {
    let is_it = |entry: &&Rc<Entry>| entry.dtype == dtype && entry.device == device;
    ENTRIES_OF_THREAD.with_borrow(|entries| entries.iter().find(is_it).cloned())
}

/// `a @ b` of two matrices that fit each other, if that goes this way; `None` where it does not, and nothing was done.
#[inline]
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    if tune::may_be_enabled() {
        return Ok(None);
    }
    let Some(small) = Small::of(a, b, 1.0) else { return Ok(None) };
    small.made().map(Some).of("matmul", &[a, b])
}
