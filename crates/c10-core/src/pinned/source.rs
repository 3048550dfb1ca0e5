//! Memory of the host that the program brings to be pinned: shared memory, or memory of one NUMA node.
//!
//! **Invariant:** as long as memory is in the cache, its owner is kept and not touched; it is dropped after the driver has
//! given the memory up.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::base::error::{AllocatorError, Error, HostOutOfMemoryError, MemoryError, Result};
use crate::base::panics::{caught, discard};
use crate::sync::Mutex;
use crate::sync::lock;

/// Memory begins at multiples of it, so that no two pieces share a page, and has at least as many bytes.
const PAGE: usize = 4096;

/// Gives memory of the host for the cache of pinned memory; see
/// [`PinnedMemory::set_source`](crate::PinnedMemory::set_source).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{HostMemorySource, HostPages, PinnedBuffer, Result, Runtime};
///
/// /// Memory of the heap; shared memory or memory of a NUMA node is brought alike.
/// #[derive(Debug)]
/// struct Heap;
///
/// /// Bytes of a vector, from a page's begin on.
/// struct Pages(Vec<u8>, usize);
///
/// impl AsMut<[u8]> for Pages {
///     fn as_mut(&mut self) -> &mut [u8] {
///         let skip = self.0.as_ptr().align_offset(4096);
///         &mut self.0[skip..skip + self.1]
///     }
/// }
///
/// impl HostMemorySource for Heap {
///     fn allocate(&self, bytes: usize) -> Result<Option<HostPages>> {
///         Ok(Some(HostPages::new(Pages(vec![0; bytes + 4096], bytes))))
///     }
/// }
///
/// Runtime::current().pinned().set_source(Some(std::sync::Arc::new(Heap)))?;
/// let buffer = PinnedBuffer::new(5000)?;
/// buffer.write(0, b"pinned")?;
/// assert_eq!(buffer.to_vec()?[..6], *b"pinned");
/// # Ok::<(), c10_core::Error>(())
/// ```
pub trait HostMemorySource: fmt::Debug + Send + Sync {
    /// Memory of at least `bytes` bytes, a power of two that is at least 4096, from a page's begin on; `None` where there is
    /// none. What is cached is given up then, and the source is asked once more. It may be called by several threads at a
    /// time, and must not use the runtime.
    ///
    /// # Errors
    /// The source's own, which the request for pinned memory returns.
    fn allocate(&self, bytes: usize) -> Result<Option<HostPages>>;
}

/// Memory of the host with what owns it. Dropping it drops the owner.
///
/// ```
/// use c10_core::HostPages;
///
/// let pages = HostPages::new(vec![7; 10]);
/// assert_eq!((pages.len(), pages.is_empty()), (10, false));
/// ```
pub struct HostPages {
    owner: Box<dyn Any + Send>,
    address: usize,
    bytes: usize,
}

impl HostPages {
    /// The bytes that an owner lends as long as it lives: a mapping, for example. They are set to zero. The owner is not
    /// touched again before it is dropped.
    pub fn new<O: AsMut<[u8]> + Send + 'static>(owner: O) -> Self {
        let mut owner = Box::new(owner);
        let memory: &mut [u8] = O::as_mut(&mut owner);
        memory.fill(0);
        let (address, bytes) = (memory.as_mut_ptr().expose_provenance(), memory.len());
        Self { owner, address, bytes }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl fmt::Debug for HostPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = &self.owner;
        write!(f, "HostPages {{ {} bytes at {:#x} }}", self.bytes, self.address)
    }
}

/// The source of a cache, and what came from it.
#[derive(Debug, Default)]
pub(super) struct Own {
    source: Mutex<Option<Arc<dyn HostMemorySource>>>,
    pages: Mutex<BTreeMap<usize, HostPages>>,
}

impl Own {
    pub(super) fn set(&self, source: Option<Arc<dyn HostMemorySource>>) {
        *lock(&self.source) = source;
    }

    /// Memory of the source, for `pin` to pin it; `None` where there is no source.
    pub(super) fn take(&self, bytes: usize, pin: impl FnOnce(usize, usize) -> Result<()>) -> Result<Option<usize>> {
        let Some(source) = lock(&self.source).clone() else { return Ok(None) };
        let bytes = bytes.max(PAGE);
        let asked = caught(|| source.allocate(bytes));
        let pages = asked.map_err(|_| panicked())??.ok_or_else(|| out_of_memory(bytes))?;
        let address = pages.address;
        if pages.bytes < bytes || !address.is_multiple_of(PAGE) {
            let (address, found) = (address as u64, pages.bytes as u64);
            return Err(AllocatorError::UnusablePages { address, found, asked: bytes as u64 }.into());
        }
        pin(address, bytes)?;
        lock(&self.pages).insert(address, pages);
        Ok(Some(address))
    }

    /// Gives memory up that the driver does not know any more.
    pub(super) fn give(&self, address: usize) {
        let pages = lock(&self.pages).remove(&address);
        // A panic of the owner's must not unwind through the cache.
        discard(pages);
    }
}

fn panicked() -> Error {
    AllocatorError::Panicked { function: "the source of pinned memory", text: "see the panic's message".into() }.into()
}

/// The caller adds the other figures.
fn out_of_memory(bytes: usize) -> Error {
    let bytes = bytes as u64;
    let failed = HostOutOfMemoryError { requested: bytes, allocation: Some(bytes), held: 0, driver: None };
    Error::Memory(MemoryError::HostOutOfMemory(Box::new(failed)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::base::config::AllocatorConfig;
    use crate::pinned::cache::{PinnedCache, Released};
    use crate::pinned::model::{DEVICE, Model};

    /// Bytes of the heap, from a page's begin on, or not.
    struct Bytes {
        memory: Vec<u8>,
        skip: usize,
        len: usize,
        live: Arc<AtomicUsize>,
    }

    impl AsMut<[u8]> for Bytes {
        fn as_mut(&mut self) -> &mut [u8] {
            let begin = self.memory.as_ptr().align_offset(PAGE) + self.skip;
            &mut self.memory[begin..begin + self.len]
        }
    }

    impl Drop for Bytes {
        fn drop(&mut self) {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[derive(Debug, Default)]
    struct Heap {
        live: Arc<AtomicUsize>,
        asked: AtomicUsize,
        /// How far into a page memory begins.
        skip: AtomicUsize,
        /// Answers that there is none, so often.
        refusals: AtomicUsize,
    }

    impl HostMemorySource for Heap {
        fn allocate(&self, bytes: usize) -> Result<Option<HostPages>> {
            assert!(bytes.is_power_of_two() && bytes >= PAGE);
            assert!(bytes < 1 << 30, "so much would panic");
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.refusals.load(Ordering::Relaxed) > 0 {
                self.refusals.fetch_sub(1, Ordering::Relaxed);
                return Ok(None);
            }
            self.live.fetch_add(1, Ordering::Relaxed);
            let (skip, live) = (self.skip.load(Ordering::Relaxed), Arc::clone(&self.live));
            Ok(Some(HostPages::new(Bytes { memory: vec![1; bytes + 2 * PAGE], skip, len: bytes, live })))
        }
    }

    struct Rig {
        cache: PinnedCache,
        driver: Model,
        heap: Arc<Heap>,
    }

    impl Rig {
        fn new(options: &str) -> Self {
            let config = AllocatorConfig::default().parse(options).unwrap();
            let (cache, heap) = (PinnedCache::new(&config), Arc::<Heap>::default());
            cache.set_source(Some(Arc::<Heap>::clone(&heap)));
            Self { cache, driver: Model::default(), heap }
        }

        /// Takes a block and gives it back.
        fn use_once(&self, bytes: usize) -> Result<()> {
            let (id, block) = self.cache.alloc(&self.driver, || DEVICE, bytes)?;
            assert_eq!(self.cache.release_if_unused((id, block)), Released::Cached);
            Ok(())
        }

        fn live(&self) -> usize {
            assert_eq!(self.cache.inconsistency(), None);
            self.heap.live.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn memory_of_a_source_is_cached_and_goes_back_to_it() {
        let rig = Rig::new("");
        rig.use_once(100).unwrap();
        rig.use_once(128).unwrap();
        assert_eq!((rig.live(), rig.heap.asked.load(Ordering::Relaxed)), (1, 1), "one block serves both");
        rig.cache.set_source(None);
        rig.use_once(5000).unwrap();
        assert_eq!((rig.live(), rig.driver.state().memory.len()), (1, 2), "other memory is the driver's again");
        rig.cache.empty(&rig.driver).unwrap();
        assert_eq!((rig.live(), rig.driver.state().memory.len(), rig.cache.stats().num_host_free), (0, 0, 2));
    }

    #[test]
    fn the_reserved_segment_comes_from_the_source_too() {
        let rig = Rig::new("pinned_reserve_segment_size_mb:1");
        rig.use_once(5000).unwrap();
        assert_eq!((rig.live(), rig.driver.state().memory.len()), (1, 1));
        rig.cache.dismantle(&rig.driver);
        assert_eq!((rig.heap.live.load(Ordering::Relaxed), rig.driver.state().memory.len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_pinned_goes_back_at_once() {
        let rig = Rig::new("");
        rig.heap.skip.store(64, Ordering::Relaxed);
        let error = rig.use_once(100).unwrap_err();
        assert!(matches!(error, Error::Allocator(AllocatorError::UnusablePages { found: 4096, .. })), "{error}");
        assert_eq!(rig.live(), 0);
        rig.heap.skip.store(0, Ordering::Relaxed);
        rig.use_once(100).unwrap();
        let error = rig.use_once(1 << 30).unwrap_err();
        assert!(matches!(error, Error::Allocator(AllocatorError::Panicked { .. })), "{error}");
        assert_eq!(rig.live(), 1);
    }

    #[test]
    fn a_source_without_memory_is_asked_again_after_the_cache_went_back() {
        let rig = Rig::new("");
        rig.use_once(5000).unwrap();
        rig.heap.refusals.store(1, Ordering::Relaxed);
        rig.use_once(100_000).unwrap();
        assert_eq!(rig.live(), 1, "what was cached went back first");
        rig.heap.refusals.store(2, Ordering::Relaxed);
        let Err(Error::Memory(MemoryError::HostOutOfMemory(error))) = rig.use_once(1 << 20) else {
            panic!("there was none, twice")
        };
        assert_eq!((error.requested, error.allocation, error.driver), (1 << 20, Some(1 << 20), None));
        assert_eq!(rig.live(), 0);
    }

    #[test]
    fn any_driver_call_may_fail() {
        let mut failed = std::collections::BTreeSet::new();
        for call in 1..12 {
            let rig = Rig::new("");
            rig.driver.state().fails = call;
            let first = rig.use_once(100).and_then(|()| rig.cache.empty(&rig.driver));
            assert_eq!(rig.live(), rig.driver.state().memory.len(), "call {call}: {first:?}");
            rig.driver.state().fails = 0;
            rig.use_once(100).unwrap();
            rig.cache.empty(&rig.driver).unwrap();
            assert_eq!((rig.live(), rig.driver.state().memory.len()), (0, 0), "call {call}");
            failed.extend(rig.driver.state().failed.iter().copied());
        }
        assert!(failed.contains("host_pin") && failed.contains("host_unpin"), "{failed:?}");
    }
}
