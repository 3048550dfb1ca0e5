//! Running out of device memory: torch's text, its figures, and what may help.

use std::fmt;

use crate::base::config::Backend;
use crate::base::device::DeviceIndex;
use crate::base::error::{AcceleratorError, Error, HeldMemory};
use crate::base::size::Size;

/// Why memory was not given, taken back or reached.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, MemoryError, Runtime};
///
/// let refused = Runtime::current().memory().free(1).unwrap_err();
/// assert_eq!(refused, Error::Memory(MemoryError::InvalidPointer { address: 1 }));
/// assert_eq!(refused.to_string(), "invalid device pointer: 0x1");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// More was asked for than any device can have; torch's `OutOfMemoryError`.
    #[error("CUDA out of memory. Tried to allocate more than 1EB memory.")]
    RequestTooLarge {
        /// Bytes asked for.
        requested: u64,
    },
    /// The host has not enough memory that can be pinned.
    #[error(transparent)]
    HostOutOfMemory(Box<HostOutOfMemoryError>),
    /// The host is out of memory; the text is that of torch's CPU allocator.
    #[error(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate {bytes} bytes. Error code 12 (Cannot allocate \
         memory)"
    )]
    HostAllocation {
        /// Requested bytes.
        bytes: usize,
    },
    /// Memory of several devices was asked for without devices, or with one named twice.
    #[error("memory of several devices needs each device once, not {devices:?}")]
    SymmetricDevices {
        /// What was given.
        devices: Vec<DeviceIndex>,
    },
    /// Devices cannot have memory that all of them reach.
    #[error(
        "memory at the same offset on several devices needs virtual memory and access between all of them: device {device} \
         cannot reach device {peer}"
    )]
    NotSymmetric {
        /// The device that would reach for it.
        device: DeviceIndex,
        /// The device that has the memory; the same one where it has no virtual memory.
        peer: DeviceIndex,
    },
    /// The address was not handed out by this allocator, or was given back already.
    #[error("invalid device pointer: {address:#x}")]
    InvalidPointer {
        /// The address.
        address: u64,
    },
    /// The memory at the address belongs to a buffer, which alone gives it back.
    #[error(
        "the memory at {address:#x} belongs to a buffer: it is given back when the last handle of that buffer is dropped"
    )]
    OwnedByBuffer {
        /// The address.
        address: u64,
    },
    /// The allocator is at work on this thread, and what it calls has asked for it: a subscriber of `tracing`, for instance.
    #[error("the allocator is at work on this thread, so what it calls meanwhile cannot use it")]
    Reentered,
    /// The driver does not know an address, so that it is on no device.
    #[error("The specified pointer resides on host memory and is not registered with any CUDA device.")]
    PointerOnNoDevice {
        /// The address.
        address: u64,
    },
    /// A part of a device's memory below 0 or above 1.
    #[error("Invalid fraction value: {fraction}. Allowed range: 0~1")]
    InvalidFraction {
        /// The number.
        fraction: RefusedFraction,
    },
    /// A copy, a fill or an argument reaches past the end of a buffer.
    #[error("{bytes} bytes at offset {offset} are not within a buffer of {len} bytes")]
    OutOfRange {
        /// First byte inside the buffer.
        offset: usize,
        /// Bytes from there on.
        bytes: usize,
        /// Bytes the buffer has.
        len: usize,
    },
    /// A range of a buffer ends before it begins.
    #[error("the range {start}..{end} of a buffer ends before it begins")]
    ReversedRange {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
    /// An option of the history of device memory has a value that it cannot have.
    #[error("expected {expected}, not '{found}'")]
    HistoryOption {
        /// The option and what it can be, as torch says it.
        expected: &'static str,
        /// The value.
        found: Box<str>,
    },
}

/// A number that is no fraction; equal to another one of the same bits.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, MemoryError, RefusedFraction, Runtime};
///
/// let refused = Runtime::current().memory().set_fraction(2.0, 0).unwrap_err();
/// assert_eq!(refused, Error::Memory(MemoryError::InvalidFraction { fraction: RefusedFraction(2.0) }));
/// assert_eq!(refused.to_string(), "Invalid fraction value: 2.0. Allowed range: 0~1");
/// ```
#[derive(Clone, Copy)]
pub struct RefusedFraction(pub f64);

impl PartialEq for RefusedFraction {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for RefusedFraction {}

impl fmt::Debug for RefusedFraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RefusedFraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With a point, as torch writes it.
        write!(f, "{:?}", self.0)
    }
}

/// What the allocator knows of a request that it could not serve. All figures are bytes.
///
/// ```
/// # testkit::make_default(testkit::Config::default().capacity(64 << 20)).unwrap();
/// use c10_core::{DeviceBuffer, Error};
///
/// let Err(Error::OutOfMemory(error)) = DeviceBuffer::new(100 << 20, None) else { panic!("the device has 64 MiB") };
/// assert_eq!((error.figures.requested, error.figures.total), (100 << 20, 64 << 20));
/// assert_eq!((error.figures.allocated, error.figures.free), (0, 64 << 20));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The device.
    pub device: DeviceIndex,
    /// What the caller asked for.
    pub requested: u64,
    /// The segment that was asked of the driver for it.
    pub segment: u64,
    /// Memory of the device.
    pub total: u64,
    /// Free memory of the device.
    pub free: u64,
    /// The most bytes this process may hold, where a fraction of the memory was set.
    pub allowed: Option<u64>,
    /// What this allocator has handed out.
    pub allocated: u64,
    /// What this allocator holds from the driver.
    pub reserved: u64,
    /// Free memory inside private pools, which only their graphs may use.
    pub cached_in_private_pools: u64,
    /// Largest free block this allocator holds, of any stream.
    pub largest_free_block: u64,
}

impl From<OutOfMemory> for Error {
    fn from(figures: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(OutOfMemoryError::new(figures)))
    }
}

/// A device has not enough memory; torch's `OutOfMemoryError`.
///
/// `Display` writes the figures as torch does, then the advice that applies ([`Self::hint`]), and one line for each of
/// [`Self::held`]. Torch gives the same advice in every case; [`Self::torch_text`] is torch's text verbatim.
///
/// ```
/// # testkit::make_default(testkit::Config::default().capacity(64 << 20)).unwrap();
/// use c10_core::{DeviceBuffer, Error};
///
/// let error = DeviceBuffer::new(100 << 20, None).unwrap_err();
/// assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity"));
/// let Error::OutOfMemory(error) = error else { panic!("the device has 64 MiB") };
/// assert_eq!(error.processes, [], "there is no NVML");
/// assert!(error.to_string().ends_with(&error.hint().to_string()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemoryError {
    /// What the allocator knew.
    pub figures: OutOfMemory,
    /// Processes that hold memory of the device, as NVML shows them; none where there is no NVML.
    pub processes: Vec<ProcessMemory>,
    /// Whether the option `expandable_segments` was on.
    pub expandable_segments: bool,
    /// Whose memory it was.
    pub backend: Backend,
    /// Who holds the memory, where the request was for pages that move; the free pages in it are none that it could have.
    pub held: Vec<HeldMemory>,
}

/// A process that holds memory of a device.
///
/// `Display` writes the process and its memory: `process 77 has 2.00 GiB`.
///
/// ```
/// use c10_core::ProcessMemory;
///
/// let process = ProcessMemory { pid: 77, used_bytes: Some(3 << 30) };
/// assert_eq!(process.to_string(), "process 77 has 3.00 GiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessMemory {
    /// Number of the process, as NVML sees it: inside a container it may be that of the host.
    pub pid: u32,
    /// Bytes it holds; `None` where NVML cannot tell.
    pub used_bytes: Option<u64>,
}

impl fmt::Display for ProcessMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.used_bytes {
            Some(bytes) => write!(f, "process {} has {}", self.pid, Size(bytes)),
            None => write!(f, "process {} has an unknown amount", self.pid),
        }
    }
}

/// What may help where memory ran out. `Display` is a sentence for a person.
///
/// ```
/// # testkit::make_default(testkit::Config::default().capacity(64 << 20)).unwrap();
/// use c10_core::{DeviceBuffer, Error, OutOfMemoryHint};
///
/// let Err(Error::OutOfMemory(error)) = DeviceBuffer::new(100 << 20, None) else { panic!("the device has 64 MiB") };
/// assert_eq!(error.hint(), OutOfMemoryHint::LargerThanDevice { segment: 100 << 20, total: 64 << 20 });
/// assert!(error.hint().to_string().ends_with("is larger than the device, which has 64.00 MiB."));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutOfMemoryHint {
    /// The request is larger than the device.
    LargerThanDevice {
        /// Bytes asked of the driver.
        segment: u64,
        /// Bytes the device has.
        total: u64,
    },
    /// The request is larger than what this process may hold.
    LargerThanAllowed {
        /// Bytes asked of the driver.
        segment: u64,
        /// Bytes this process may hold.
        allowed: u64,
    },
    /// Other processes hold most of the device's memory.
    OtherProcesses(Vec<ProcessMemory>),
    /// Free memory inside private pools would have been enough.
    PrivatePools {
        /// Free bytes in private pools.
        bytes: u64,
    },
    /// Free memory would have been enough, but is in pieces; segments that expand leave fewer.
    ExpandableSegments {
        /// Free bytes held from the driver.
        unallocated: u64,
    },
    /// What the program holds, and the limit that was set for it, leave too little.
    Limit {
        /// Bytes this process may hold.
        allowed: u64,
    },
    /// The program holds what there is.
    InUse {
        /// Bytes handed out.
        allocated: u64,
    },
}

impl OutOfMemoryError {
    pub(crate) fn new(figures: OutOfMemory) -> Self {
        Self::of(figures, Backend::Native)
    }

    pub(crate) fn of(figures: OutOfMemory, backend: Backend) -> Self {
        Self { figures, processes: Vec::new(), expandable_segments: false, backend, held: Vec::new() }
    }

    /// What may help.
    #[must_use]
    pub fn hint(&self) -> OutOfMemoryHint {
        let figures = &self.figures;
        let OutOfMemory { segment, total, allocated, .. } = *figures;
        let others = self.others();
        let held_by_others: u64 = others.iter().filter_map(|process| process.used_bytes).sum();
        let private = figures.cached_in_private_pools;
        let unallocated = self.unallocated();
        // What the driver would still have given: the limit may leave less than the device.
        let room =
            figures.allowed.map_or(figures.free, |allowed| figures.free.min(allowed.saturating_sub(figures.reserved)));
        if segment > total {
            return OutOfMemoryHint::LargerThanDevice { segment, total };
        }
        if let Some(allowed) = figures.allowed.filter(|allowed| segment > *allowed) {
            return OutOfMemoryHint::LargerThanAllowed { segment, allowed };
        }
        if held_by_others > total / 2 {
            return OutOfMemoryHint::OtherProcesses(others);
        }
        if private > 0 && private.saturating_add(room) >= segment {
            return OutOfMemoryHint::PrivatePools { bytes: private };
        }
        let could_expand = !self.expandable_segments && self.backend == Backend::Native;
        if could_expand && unallocated > 0 && unallocated.saturating_add(room) >= segment {
            return OutOfMemoryHint::ExpandableSegments { unallocated };
        }
        match figures.allowed {
            Some(allowed) if figures.free >= segment => OutOfMemoryHint::Limit { allowed },
            _ => OutOfMemoryHint::InUse { allocated },
        }
    }

    /// The processes that are not this one.
    fn others(&self) -> Vec<ProcessMemory> {
        self.processes.iter().filter(|process| process.pid != std::process::id()).copied().collect()
    }

    /// Torch's text under `backend:cudaMallocAsync`.
    fn fmt_of_driver_pools(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(f, "Allocation on device {} would exceed allowed memory. (out of memory)", figures.device)?;
        writeln!(f, "Currently allocated     : {}", Size(figures.allocated))?;
        writeln!(f, "Requested               : {}", Size(figures.requested))?;
        writeln!(f, "Device limit            : {}", Size(figures.total))?;
        writeln!(f, "Free (according to CUDA): {}", Size(figures.free))?;
        writeln!(f, "PyTorch limit (set by user-supplied memory fraction)")?;
        f.write_str("                        : ")?;
        match figures.allowed {
            Some(allowed) => write!(f, "{}", Size(allowed)),
            None => f.write_str("none"),
        }
    }

    /// Returns torch's text verbatim, which gives the same advice in every case.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().capacity(64 << 20)).unwrap();
    /// use c10_core::{DeviceBuffer, Error};
    ///
    /// let Err(Error::OutOfMemory(error)) = DeviceBuffer::new(100 << 20, None) else { panic!("the device has 64 MiB") };
    /// assert!(error.torch_text().contains("If reserved but unallocated memory is large try setting"));
    /// ```
    #[must_use]
    pub fn torch_text(&self) -> String {
        struct Torch<'a>(&'a OutOfMemoryError);
        impl fmt::Display for Torch<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let is_async = self.0.backend == Backend::CudaMallocAsync;
                if is_async { self.0.fmt_of_driver_pools(f) } else { self.0.fmt_as_torch(f) }
            }
        }
        Torch(self).to_string()
    }

    /// Writes torch's text, with its advice.
    fn fmt_as_torch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_figures(f)?;
        f.write_str("If reserved but unallocated memory is large try setting ")?;
        f.write_str("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  ")?;
        f.write_str("See documentation for Memory Management  ")?;
        f.write_str("(https://docs.pytorch.org/docs/stable/notes/cuda.html")?;
        f.write_str("#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)")
    }

    /// Writes the part of torch's text before the advice.
    fn fmt_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        let private = figures.cached_in_private_pools;
        write!(f, "CUDA out of memory. Tried to allocate {}. ", Size(figures.segment))?;
        write!(f, "GPU {} has a total capacity of {} ", figures.device, Size(figures.total))?;
        write!(f, "of which {} is free. ", Size(figures.free))?;
        for process in &self.processes {
            if process.pid == std::process::id() {
                f.write_str("Including non-PyTorch memory, this process")?;
            } else {
                write!(f, "Process {}", process.pid)?;
            }
            match process.used_bytes {
                Some(bytes) => write!(f, " has {} memory in use. ", Size(bytes))?,
                None => f.write_str(" has an unknown amount of memory in use. ")?,
            }
        }
        if let Some(allowed) = figures.allowed {
            write!(f, "{} allowed; ", Size(allowed))?;
        }
        write!(f, "Of the allocated memory {} is allocated by PyTorch, ", Size(figures.allocated + private))?;
        if private > 0 {
            write!(f, "with {} allocated in private pools (e.g., CUDA Graphs), ", Size(private))?;
        }
        write!(f, "and {} is reserved by PyTorch but unallocated. ", Size(self.unallocated()))
    }

    /// Returns the bytes reserved from the driver that are neither allocated nor kept in private pools.
    fn unallocated(&self) -> u64 {
        let figures = &self.figures;
        figures.reserved.saturating_sub(figures.allocated).saturating_sub(figures.cached_in_private_pools)
    }
}

impl fmt::Display for OutOfMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = self.hint();
        if self.backend == Backend::CudaMallocAsync {
            self.fmt_of_driver_pools(f)?;
            write!(f, "\n{hint}")?;
        } else if matches!(hint, OutOfMemoryHint::ExpandableSegments { .. }) {
            self.fmt_as_torch(f)?;
        } else {
            self.fmt_figures(f)?;
            write!(f, "{hint}")?;
        }
        self.held.iter().try_for_each(|held| write!(f, "\n{held}"))
    }
}

impl std::error::Error for OutOfMemoryError {}

impl fmt::Display for OutOfMemoryHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LargerThanDevice { segment, total } => {
                write!(f, "The request of {} is larger than the device, which has {}.", Size(*segment), Size(*total))
            }
            Self::LargerThanAllowed { segment, allowed } => write!(
                f,
                "The request of {} is larger than the {} that this process may hold; raise its memory fraction.",
                Size(*segment),
                Size(*allowed)
            ),
            Self::OtherProcesses(processes) => {
                f.write_str("Other processes hold most of the device's memory:")?;
                for process in processes {
                    write!(f, " {process};")?;
                }
                f.write_str(" end them or use another device.")
            }
            Self::PrivatePools { bytes } => write!(
                f,
                "{} are free, but belong to private pools; drop graphs and memory pools that are no longer used, and empty the cache.",
                Size(*bytes)
            ),
            Self::ExpandableSegments { unallocated } => write!(
                f,
                "{} are held and free, but in pieces; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
                Size(*unallocated)
            ),
            Self::Limit { allowed } => write!(
                f,
                "The device has enough memory, but this process may hold only {}; raise its memory fraction.",
                Size(*allowed)
            ),
            Self::InUse { allocated } => {
                write!(
                    f,
                    "The program uses {}; free memory that is no longer needed, or use smaller batches.",
                    Size(*allocated)
                )
            }
        }
    }
}

/// The host has not enough memory that can be pinned.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, MemoryError, PinnedBuffer};
///
/// let refused = PinnedBuffer::new((1 << 60) + 1).unwrap_err();
/// assert!(refused.is_out_of_memory());
/// let Error::Memory(MemoryError::HostOutOfMemory(error)) = refused else { panic!("no host has as much") };
/// assert_eq!((error.requested, error.held), ((1 << 60) + 1, 0));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostOutOfMemoryError {
    /// Bytes that the caller asked for.
    pub requested: u64,
    /// Bytes that were asked of the driver or the system: the request rounded up to a power of two, or the reserved
    /// segment. `None` for a request that is too large to be rounded up.
    pub allocation: Option<u64>,
    /// Bytes of pinned memory that the runtime holds already.
    pub held: u64,
    /// The driver's answer, where it was the driver that refused.
    pub driver: Option<AcceleratorError>,
}

impl fmt::Display for HostOutOfMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requested, held) = (Size(self.requested), Size(self.held));
        write!(
            f,
            "Out of host memory. Tried to pin {} for a request of {requested}",
            Size(self.allocation.unwrap_or(self.requested))
        )?;
        write!(f, " while {held} of host memory are pinned. ")?;
        f.write_str("Free host memory that is no longer needed, or raise the limits of the process.")
    }
}

impl std::error::Error for HostOutOfMemoryError {}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// 80 GiB with 10 free; 60 handed out of 70 held.
    fn failed(change: impl FnOnce(&mut OutOfMemory)) -> OutOfMemoryError {
        let mut figures = OutOfMemory {
            device: DeviceIndex(0),
            requested: 12 * GIB,
            segment: 12 * GIB,
            total: 80 * GIB,
            free: 10 * GIB,
            allowed: None,
            allocated: 60 * GIB,
            reserved: 61 * GIB,
            cached_in_private_pools: 0,
            largest_free_block: GIB,
        };
        change(&mut figures);
        OutOfMemoryError::new(figures)
    }

    #[test]
    fn the_text_has_torchs_fields_in_torchs_order() {
        let mut failed = failed(|figures| {
            figures.allowed = Some(40 * GIB);
            (figures.allocated, figures.reserved, figures.cached_in_private_pools) = (30 * GIB, 39 * GIB, 2 * GIB);
        });
        failed.processes = vec![
            ProcessMemory { pid: 1, used_bytes: Some(3 * GIB) },
            ProcessMemory { pid: std::process::id(), used_bytes: Some(948 << 20) },
            ProcessMemory { pid: 2, used_bytes: None },
        ];
        let figures = "CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 80.00 GiB of \
             which 10.00 GiB is free. Process 1 has 3.00 GiB memory in use. Including non-PyTorch memory, this process \
             has 948.00 MiB memory in use. Process 2 has an unknown amount of memory in use. 40.00 GiB allowed; Of the \
             allocated memory 32.00 GiB is allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA \
             Graphs), and 7.00 GiB is reserved by PyTorch but unallocated. ";
        let torch = failed.torch_text();
        assert!(torch.starts_with(&format!("{figures}If reserved but unallocated memory is large")), "{torch}");
        // Torch's advice would not help here.
        assert_eq!(failed.hint(), OutOfMemoryHint::InUse { allocated: 30 * GIB });
        assert_eq!(failed.to_string(), format!("{figures}{}", failed.hint()));
    }

    #[test]
    fn torchs_advice_is_given_where_it_fits() {
        let failed = failed(|figures| figures.allocated = 58 * GIB);
        assert_eq!(failed.to_string(), failed.torch_text());
        let mut of_driver = failed;
        of_driver.backend = Backend::CudaMallocAsync;
        assert_eq!(of_driver.to_string(), format!("{}\n{}", of_driver.torch_text(), of_driver.hint()));
    }

    #[test]
    fn the_hint_fits_the_case() {
        use OutOfMemoryHint as Hint;
        let hint = |change: &dyn Fn(&mut OutOfMemory)| failed(|figures| change(figures)).hint();
        assert_eq!(hint(&|_| ()), Hint::InUse { allocated: 60 * GIB });
        assert_eq!(
            hint(&|figures| figures.segment = 81 * GIB),
            Hint::LargerThanDevice { segment: 81 * GIB, total: 80 * GIB }
        );
        assert_eq!(
            hint(&|figures| figures.allowed = Some(11 * GIB)),
            Hint::LargerThanAllowed { segment: 12 * GIB, allowed: 11 * GIB }
        );
        let limited = |figures: &mut OutOfMemory| (figures.allowed, figures.free) = (Some(62 * GIB), 19 * GIB);
        assert_eq!(hint(&limited), Hint::Limit { allowed: 62 * GIB });
        assert_eq!(
            hint(&|figures| (figures.allocated, figures.cached_in_private_pools) = (50 * GIB, 10 * GIB)),
            Hint::PrivatePools { bytes: 10 * GIB }
        );
        assert_eq!(hint(&|figures| figures.allocated = 58 * GIB), Hint::ExpandableSegments { unallocated: 3 * GIB });
    }

    #[test]
    fn an_option_that_is_on_is_not_advised() {
        let mut failed = failed(|figures| figures.allocated = 58 * GIB);
        failed.expandable_segments = true;
        assert_eq!(failed.hint(), OutOfMemoryHint::InUse { allocated: 58 * GIB });
    }

    #[test]
    fn processes_that_hold_most_of_the_memory_are_named() {
        let mut failed = failed(|figures| (figures.allocated, figures.reserved) = (GIB, GIB));
        let other = ProcessMemory { pid: 77, used_bytes: Some(69 * GIB) };
        failed.processes = vec![ProcessMemory { pid: std::process::id(), used_bytes: Some(GIB) }, other];
        assert_eq!(failed.hint(), OutOfMemoryHint::OtherProcesses(vec![other]));
        let text = failed.hint().to_string();
        assert!(text.contains("process 77 has 69.00 GiB"), "{text}");
        let debug = format!("{:?}", Error::OutOfMemory(Box::new(failed)));
        assert!(debug.starts_with("CUDA out of memory.") && debug.ends_with(&text), "{debug}");
    }
}
