//! Which way the bytes of a file go.

use std::fmt;

/// Who hands the requests to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requests {
    /// cuFile, between disk and device.
    Cufile,
    /// `io_uring`, into pinned buffers.
    IoUring,
    /// Several threads, each with pinned buffers.
    Threads,
}

/// Which way the bytes of a file go, and why; made by [`crate::gds::GdsFile::route`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use cuda_storage::gds::{GdsFile, OpenFlags};
///
/// let route = GdsFile::new(std::env::current_exe()?, OpenFlags::RDONLY)?.route();
/// assert!(!route.is_direct);
/// assert!(route.to_string().starts_with("not direct: through pinned buffers"), "{route}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Whether bytes move between disk and device without the host's memory. cuFile's compatibility mode is not that.
    pub is_direct: bool,
    /// Whether bytes go through the host's page cache.
    pub page_cache: bool,
    /// Who hands the requests to the disk.
    pub requests: Requests,
    /// Why it is not direct, and why it goes through the page cache, where that is so.
    pub why: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_direct {
            return f.write_str("direct: between disk and device by cuFile");
        }
        let cache = if self.page_cache { "through" } else { "past" };
        let requests = match self.requests {
            Requests::IoUring => "io_uring",
            Requests::Cufile | Requests::Threads => "threads",
        };
        write!(f, "not direct: through pinned buffers, {cache} the page cache, by {requests} ({})", self.why)
    }
}
