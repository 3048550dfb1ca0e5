//! Descriptions of shared memory, and their bytes.
//!
//! **Invariant:** bytes that were read describe memory that lies inside what is mapped for it, as far as they tell; anything
//! else about them may be wrong, and is found when the memory is opened.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, IpcError, Result};
use crate::driver::{IpcHandle, ProcessName};
use crate::state::ipc::SlotName;

/// A description of device memory for another process; made by [`crate::DeviceBuffer::share`].
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use c10_core::{DeviceBuffer, SharedBuffer};
///
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let bytes = buffer.share()?.to_bytes(); // For a pipe to the other process.
/// assert_eq!(SharedBuffer::from_bytes(&bytes)?.len(), 1000);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedBuffer {
    pub(super) device: DeviceIndex,
    pub(super) len: u64,
    /// `None` for a buffer without bytes.
    pub(super) place: Option<Place>,
}

/// Where shared memory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) source: Source,
    /// Where the memory begins in what is mapped.
    pub(super) offset: u64,
    /// Which device it is, for processes that number devices differently.
    pub(super) uuid: [u8; 16],
    /// What the process that has allocated the memory calls it.
    pub(super) identity: u64,
    /// Recorded behind the sender's work, where it had not ended when the memory was shared.
    pub(super) event: Option<IpcHandle>,
    /// Where receivers are counted: by the process that has allocated the memory, then by one that has shared it on.
    pub(super) slots: Vec<SlotName>,
}

/// What a receiver maps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// An allocation of the driver.
    Segment(IpcHandle),
    /// Neighbouring pages.
    Pages {
        /// The process that has their descriptors.
        process: ProcessName,
        descriptors: Vec<i32>,
        /// Bytes of each.
        page: u64,
    },
}

/// First byte of a shared buffer as bytes.
const VERSION: u8 = 4;
/// More processes than these are in no description.
const MOST_SLOTS: usize = 2;

/// As the bytes of [`SharedBuffer::to_bytes`].
#[cfg(feature = "serde")]
impl serde::Serialize for SharedBuffer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&self.to_bytes(), serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SharedBuffer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <Vec<u8> as serde::Deserialize>::deserialize(deserializer)?;
        Self::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

impl SharedBuffer {
    /// Bytes of the memory.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Whether the memory has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of the device in the process that shares it.
    #[must_use]
    pub fn device_index(&self) -> DeviceIndex {
        self.device
    }

    /// The same as bytes, for a pipe or a file. The first byte is a version.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.device.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        if let Some(place) = &self.place {
            place.write(&mut bytes);
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`crate::IpcError::InvalidBytes`] for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or(Error::Ipc(IpcError::InvalidBytes))
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        if take(&mut bytes)? != [VERSION] {
            return None;
        }
        let device = DeviceIndex(i32::from_le_bytes(take(&mut bytes)?));
        let len = u64::from_le_bytes(take(&mut bytes)?);
        let place = if len == 0 { None } else { Some(Place::read(&mut bytes, len)?) };
        bytes.is_empty().then_some(Self { device, len, place })
    }
}

impl Place {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.uuid);
        bytes.extend(self.identity.to_le_bytes());
        bytes.push(u8::from(self.event.is_some()));
        bytes.extend(self.event.iter().flatten());
        match &self.source {
            Source::Segment(segment) => {
                bytes.push(0);
                bytes.extend(segment);
            }
            Source::Pages { process, descriptors, page } => {
                bytes.push(1);
                bytes.extend(process.number.to_le_bytes());
                let numbers = [process.started, process.namespace, *page, descriptors.len() as u64];
                bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                bytes.extend(descriptors.iter().flat_map(|descriptor| descriptor.to_le_bytes()));
            }
        }
        // There are one or two.
        bytes.push(u8::try_from(self.slots.len()).unwrap_or(u8::MAX));
        for slot in &self.slots {
            let path = slot.path.as_os_str().as_bytes();
            bytes.extend(slot.index.to_le_bytes());
            bytes.extend(slot.number.to_le_bytes());
            bytes.extend((path.len() as u64).to_le_bytes());
            bytes.extend(path);
        }
    }

    fn read(bytes: &mut &[u8], len: u64) -> Option<Self> {
        let offset = u64::from_le_bytes(take(bytes)?);
        let end = offset.checked_add(len)?;
        let uuid = take(bytes)?;
        let identity = u64::from_le_bytes(take(bytes)?);
        let event = match take(bytes)? {
            [0] => None,
            [1] => Some(take(bytes)?),
            _ => return None,
        };
        let source = match take(bytes)? {
            [0] => Source::Segment(take(bytes)?),
            [1] => Source::read_pages(bytes, end)?,
            _ => return None,
        };
        let [count] = take(bytes)?;
        if count == 0 || usize::from(count) > MOST_SLOTS {
            return None;
        }
        let slots = (0..count).map(|_| read_slot(bytes)).collect::<Option<_>>()?;
        Some(Self { source, offset, uuid, identity, event, slots })
    }
}

fn read_slot(bytes: &mut &[u8]) -> Option<SlotName> {
    let index = u32::from_le_bytes(take(bytes)?);
    let number = u64::from_le_bytes(take(bytes)?);
    let length = usize::try_from(u64::from_le_bytes(take(bytes)?)).ok()?;
    let (path, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    path.is_absolute().then_some(SlotName { path, index, number })
}

impl Source {
    /// Pages that memory up to a place ends in the last of.
    fn read_pages(bytes: &mut &[u8], end: u64) -> Option<Self> {
        let number = u32::from_le_bytes(take(bytes)?);
        let mut word = || take(bytes).map(u64::from_le_bytes);
        let (started, namespace, page, count) = (word()?, word()?, word()?, word()?);
        let is_right = page > 0 && count == end.div_ceil(page) && count.checked_mul(page).is_some();
        if !is_right || count > bytes.len() as u64 / 4 {
            return None;
        }
        let descriptors: Option<Vec<i32>> = (0..count).map(|_| take(bytes).map(i32::from_le_bytes)).collect();
        Some(Self::Pages { process: ProcessName { number, started, namespace }, descriptors: descriptors?, page })
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer {{ {} bytes of the sender's {} }}", self.len, Device::cuda(self.device))
    }
}

/// Takes the first bytes.
fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(path: &str) -> SlotName {
        SlotName { path: PathBuf::from(path), index: 3, number: 1 << 50 }
    }

    fn shared(len: u64, source: Source) -> SharedBuffer {
        let slots = vec![slot("/tmp/c10-ipc-1-2"), slot("/tmp/c10-ipc-3-4")];
        let place = Place { source, offset: 1 << 20, uuid: [3; 16], identity: 5, event: Some([9; 64]), slots };
        SharedBuffer { device: DeviceIndex(1), len, place: Some(place) }
    }

    fn pages() -> Source {
        let process = ProcessName { number: 17, started: 18, namespace: 19 };
        Source::Pages { process, descriptors: vec![4, 5], page: 2 << 20 }
    }

    #[test]
    fn shared_buffers_survive_the_way() {
        let mut of_one = shared(1 << 40, Source::Segment([7; 64]));
        let place = of_one.place.as_mut().unwrap();
        place.slots.truncate(1);
        place.event = None;
        let empty = SharedBuffer { len: 0, place: None, ..of_one.clone() };
        for shared in [shared(3 << 20, pages()), shared(1 << 40, Source::Segment([7; 64])), of_one, empty] {
            let bytes = shared.to_bytes();
            assert_eq!(SharedBuffer::from_bytes(&bytes), Ok(shared));
            let wrong = Err(Error::Ipc(IpcError::InvalidBytes));
            assert!((0..bytes.len()).all(|end| SharedBuffer::from_bytes(&bytes[..end]) == wrong));
            assert_eq!(SharedBuffer::from_bytes(&[&bytes[..], &[0]].concat()), wrong);
        }
    }

    #[test]
    fn bytes_that_contradict_themselves_are_refused() {
        let bytes = shared(3 << 20, pages()).to_bytes();
        // Behind version, device, length, offset, identity of the device, identity, event and kind.
        let pages_at = 1 + 4 + 8 + 8 + 16 + 8 + 65 + 1;
        let wrong = [
            (0, "another version"),
            (8, "the memory ends behind the pages"),
            (45, "neither an event nor none"),
            (pages_at - 1, "no such source"),
            (pages_at + 4 + 24, "more descriptors than pages"),
            (pages_at + 4 + 32 + 8, "more slots than there may be"),
        ];
        for (at, what) in wrong {
            let mut bytes = bytes.clone();
            bytes[at] = bytes[at].wrapping_add(1);
            assert!(SharedBuffer::from_bytes(&bytes).is_err(), "{what}");
        }
        let beyond = SharedBuffer { len: u64::MAX, ..shared(1, Source::Segment([7; 64])) };
        assert!(SharedBuffer::from_bytes(&beyond.to_bytes()).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let bytes = shared(3 << 20, pages()).to_bytes();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut changed = bytes.clone();
            let at = usize::try_from(state >> 33).unwrap() % changed.len();
            changed[at] = state.to_le_bytes()[2];
            if let Ok(read) = SharedBuffer::from_bytes(&changed) {
                assert_eq!(read.to_bytes(), changed);
            }
        }
    }
}
