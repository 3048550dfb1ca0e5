//! What would become of a request for device memory: where the memory would come from, or why there is none.
//!
//! **Invariant:** nothing changes by asking. The answer is that of the moment: another thread may change it, and so do
//! events that pass and options that are set.

use std::fmt;

use crate::api::memory::Memory;
use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::ids::PoolId;
use crate::base::size::Size;
use crate::caching::{BlockState, RequestSizes, SegmentInfo};
use crate::driver::Driver;

/// Where the memory for a request would come from.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{RequestAnswer, Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let answer = || Ok::<_, c10_core::Error>(runtime.memory().outlook(1 << 20, &stream)?.answer);
/// assert_eq!(answer()?, RequestAnswer::NewMemory);
/// drop(runtime.memory().buffer(1 << 20, &stream)?);
/// assert_eq!(answer()?, RequestAnswer::Cached);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestAnswer {
    /// From a free block of the stream.
    Cached,
    /// From the driver.
    NewMemory,
    /// From the driver, after cached memory that nobody uses was given back to it.
    AfterRelease,
    /// From nowhere: the request would fail.
    OutOfMemory,
}

/// What would become of a request; made by [`Memory::outlook`]. All sizes are bytes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{RequestAnswer, Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let outlook = runtime.memory().outlook(1 << 40, &stream)?;
/// assert_eq!(outlook.answer, RequestAnswer::OutOfMemory);
/// println!("{outlook}"); // such as "1024.00 GiB cannot be had: device 0 has 15.99 GiB free, and ..."
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestOutlook {
    /// The device.
    pub device: DeviceIndex,
    /// Asked for.
    pub requested: u64,
    /// The block that would be handed out.
    pub rounded: u64,
    /// What the driver would be asked for.
    pub segment: u64,
    /// Where the memory would come from.
    pub answer: RequestAnswer,
    /// In the largest free block that may serve requests of this size on this stream.
    pub largest_free: u64,
    /// In free blocks of this stream, of segments for requests of this size.
    pub free: u64,
    /// In free blocks of this stream, of segments for requests of other sizes.
    pub free_for_other_sizes: u64,
    /// In free blocks that belong to other streams.
    pub free_of_other_streams: u64,
    /// In free blocks of private pools.
    pub free_in_private_pools: u64,
    /// In blocks that were given back and that a stream may still use.
    pub pending: u64,
    /// In free blocks that are segments by themselves, which can be given back to the driver.
    pub releasable: u64,
    /// Free on the device, as the driver says.
    pub device_free: u64,
    /// May still be taken from the driver; `None` without a limit.
    pub allowed: Option<u64>,
}

impl Memory<'_> {
    /// What would become of a request for `bytes` bytes on a stream outside private pools: where the memory would come
    /// from, or why there is none. Blocks that wait for streams count as used. Where segments expand, and for reserves of
    /// private pools that help out, the answer is an estimate.
    ///
    /// # Errors
    /// The backend is not the caching allocator; the request is larger than any can be; the stream belongs to another runtime; the driver's error.
    pub fn outlook(self, bytes: u64, stream: &Stream) -> Result<RequestOutlook> {
        let runtime = self.runtime();
        runtime.check_same(stream.runtime(), "stream")?;
        let (ready, device) = (runtime.ready()?, stream.device_index());
        ready.allocator.only_native("outlook")?;
        let sizes = RequestSizes::new(&runtime.config(), bytes);
        let sizes = sizes.ok_or(Error::Memory(MemoryError::RequestTooLarge { requested: bytes }))?;
        let device_free = ready.api.mem_get_info(device)?.free;
        let limit = ready.allocator.limit(device)?;
        let segments = ready.allocator.snapshot_of(device, None);
        let held: u64 = segments.iter().map(|segment| segment.total_size).sum();
        let mut outlook = RequestOutlook {
            device,
            requested: bytes,
            rounded: sizes.rounded,
            segment: sizes.segment,
            answer: RequestAnswer::OutOfMemory,
            largest_free: 0,
            free: 0,
            free_for_other_sizes: 0,
            free_of_other_streams: 0,
            free_in_private_pools: 0,
            pending: 0,
            releasable: 0,
            device_free,
            allowed: limit.map(|limit| limit.saturating_sub(held)),
        };
        let handle = stream.reference().handle.0 as u64;
        let mut fits = None;
        for segment in &segments {
            outlook.add(segment, handle, &sizes, &mut fits);
        }
        outlook.decide(&sizes, fits);
        Ok(outlook)
    }
}

impl RequestOutlook {
    /// Adds a segment; `fits` is the smallest free block that is large enough.
    fn add(&mut self, segment: &SegmentInfo, stream: u64, sizes: &RequestSizes, fits: &mut Option<u64>) {
        let is_own = segment.stream == stream && segment.segment_type == sizes.segment_type;
        for block in &segment.blocks {
            match block.state {
                BlockState::ActiveAllocated => continue,
                BlockState::ActivePendingFree => {
                    self.pending += block.size;
                    continue;
                }
                BlockState::Inactive => {}
            }
            if segment.pool != PoolId(0, 0) {
                self.free_in_private_pools += block.size;
                continue;
            }
            self.releasable += if block.size == segment.total_size { block.size } else { 0 };
            if segment.stream != stream {
                self.free_of_other_streams += block.size;
            } else if !is_own {
                self.free_for_other_sizes += block.size;
            } else {
                self.free += block.size;
                self.largest_free = self.largest_free.max(block.size);
                if block.size >= sizes.rounded && fits.is_none_or(|size| block.size < size) {
                    *fits = Some(block.size);
                }
            }
        }
    }

    fn decide(&mut self, sizes: &RequestSizes, fits: Option<u64>) {
        let room = self.allowed.map_or(self.device_free, |allowed| allowed.min(self.device_free));
        self.answer = if fits.is_some_and(|block| sizes.may_use(block)) {
            RequestAnswer::Cached
        } else if room >= self.segment {
            RequestAnswer::NewMemory
        } else if room.saturating_add(self.releasable) >= self.segment {
            RequestAnswer::AfterRelease
        } else {
            RequestAnswer::OutOfMemory
        };
    }

    /// What keeps free memory from serving the request, most bytes first.
    fn obstacles(&self) -> Vec<(u64, &'static str)> {
        let mut obstacles = vec![
            (self.free, "is free for this stream, in pieces that are too small or may not be split"),
            (self.free_for_other_sizes, "is free for this stream, for requests of other sizes"),
            (self.free_of_other_streams, "is free for other streams"),
            (self.free_in_private_pools, "is free in private pools"),
            (self.pending, "was given back while another stream may still use it"),
        ];
        obstacles.retain(|(bytes, _)| *bytes > 0);
        obstacles.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        obstacles
    }
}

/// A sentence for the answer, and one for each reason.
impl fmt::Display for RequestOutlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, segment, device) = (Size(self.requested), Size(self.segment), self.device);
        match self.answer {
            RequestAnswer::Cached => return write!(f, "{asked} would come from the cache of device {device}."),
            RequestAnswer::NewMemory => {
                write!(f, "{asked} would take {segment} from the driver, where {} is free", Size(self.device_free))?;
            }
            RequestAnswer::AfterRelease => {
                let releasable = Size(self.releasable);
                write!(f, "{asked} would take {segment} from the driver after cached memory ({releasable}) went back")?;
            }
            RequestAnswer::OutOfMemory => {
                let free = Size(self.device_free);
                write!(f, "{asked} cannot be had: device {device} has {free} free, and {segment} are needed")?;
            }
        }
        if let Some(allowed) = self.allowed {
            write!(f, "; the limit leaves {}", Size(allowed))?;
        }
        f.write_str(".")?;
        self.obstacles().into_iter().try_for_each(|(bytes, why)| write!(f, " {} {why}.", Size(bytes)))?;
        if self.free >= self.rounded {
            write!(f, " The largest free piece is {}.", Size(self.largest_free))?;
        }
        Ok(())
    }
}
