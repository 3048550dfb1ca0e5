//! How a transfer is cut into requests.

use std::num::NonZero;

use crate::route::Requests;

/// Whether bytes of a file go through the host's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageCache {
    /// Through it where most of the file is there already, past it otherwise.
    #[default]
    Auto,
    /// Through it.
    Use,
    /// Past it (`O_DIRECT`), where the file system allows that.
    Bypass,
}

/// How a transfer is cut into requests; what is left out is chosen for the machine.
///
/// ```
/// use cuda_storage::{Options, PageCache};
///
/// let options = Options::default().page_cache(PageCache::Bypass).threads(4).chunk_bytes(1 << 20);
/// assert_eq!(options.page_cache, PageCache::Bypass);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Whether bytes go through the page cache.
    pub page_cache: PageCache,
    /// How many threads read or write at once; each has two buffers. By default as many as the machine has, 8 at most.
    pub threads: Option<usize>,
    /// Bytes of a request, and of each buffer; rounded up to a power of two, 4 KiB at least and 256 MiB at most. By
    /// default 4 MiB.
    pub chunk_bytes: Option<usize>,
    /// Who hands requests past the page cache to the disk: threads, or where the feature `io-uring` is on and the kernel
    /// allows it a ring, which is the default. Others do not matter.
    pub requests: Option<Requests>,
}

/// What a disk's blocks and the memory of requests past the page cache are aligned to.
pub(crate) const ALIGN: usize = 4096;

const THREADS: usize = 8;
const CHUNK: usize = 4 << 20;
const CHUNK_MAX: usize = 256 << 20;

impl Options {
    /// Sets whether bytes go through the page cache.
    #[must_use]
    pub fn page_cache(self, page_cache: PageCache) -> Self {
        Self { page_cache, ..self }
    }

    /// Sets how many threads read or write at once; 0 counts as 1.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Sets the bytes of a request.
    #[must_use]
    pub fn chunk_bytes(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes: Some(chunk_bytes), ..self }
    }

    /// Sets who hands requests past the page cache to the disk.
    #[must_use]
    pub fn requests(self, requests: Requests) -> Self {
        Self { requests: Some(requests), ..self }
    }

    /// Who hands requests of a file to the disk.
    pub(crate) fn by(&self, bypasses: bool) -> Requests {
        let is_ring = bypasses && self.requests != Some(Requests::Threads) && rings_are_allowed();
        if is_ring { Requests::IoUring } else { Requests::Threads }
    }

    /// How many threads there are to be.
    pub(crate) fn workers(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        self.threads.unwrap_or_else(machine).clamp(1, 256)
    }

    /// The bytes of a request: a power of two, and blocks of the disk.
    pub(crate) fn chunk(&self) -> usize {
        self.chunk_bytes.unwrap_or(CHUNK).clamp(ALIGN, CHUNK_MAX).next_power_of_two()
    }
}

/// Whether requests can be handed to the kernel by a ring.
fn rings_are_allowed() -> bool {
    #[cfg(feature = "io-uring")]
    return crate::uring::is_allowed();
    #[cfg(not(feature = "io-uring"))]
    false
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn requests_are_whole_blocks() {
        let chunk = |bytes| Options::default().chunk_bytes(bytes).chunk();
        assert_eq!([0, 4097, 1 << 20, usize::MAX].map(chunk), [4096, 8192, 1 << 20, 256 << 20]);
        assert_eq!([0, 3].map(|threads| Options::default().threads(threads).workers()), [1, 3]);
    }
}
