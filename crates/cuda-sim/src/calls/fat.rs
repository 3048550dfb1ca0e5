//! Fat binaries: code for several architectures in one image, of which the texts are looked for.
//!
//! A header is followed by entries, each with a header of its own that says what it is, for which architecture, how it
//! is compressed and how long it is.

use super::image::{Image, Refused};
use crate::codes::{Answer, INVALID_IMAGE, NO_BINARY_FOR_GPU};
use crate::unpack::{lz4, zstd};

/// How a fat binary begins, and how the structure begins that compilers put around one: its number and version, then a
/// pointer to the fat binary.
pub(super) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
pub(super) const WRAPPER: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();

/// Where the header has its own length and that of all entries.
const HEADER_LENGTH: usize = 6;
const ENTRIES_LENGTH: usize = 8;

/// Where an entry's header has what it is, its own length, that of what follows, how much of that is compressed, the
/// architecture, flags and the length of what was compressed.
const KIND: usize = 0;
const ENTRY_HEADER: usize = 4;
const LENGTH: usize = 8;
const COMPRESSED: usize = 16;
const ARCHITECTURE: usize = 28;
const FLAGS: usize = 40;
const UNPACKED: usize = 56;

/// The shortest header of an entry.
const ENTRY_HEADER_MIN: usize = 64;

/// The kind of entries that are text.
const TEXT: u64 = 1;

/// Flags of entries that are compressed.
const IS_LZ4: u64 = 0x2000;
const IS_ZSTD: u64 = 0x8000;

/// The most bytes that one text may become.
const TEXT_MAX: usize = 1 << 30;

/// The device runs texts for compute capability 9.0 and below.
const ARCHITECTURE_MAX: u64 = 90;

/// The fat binary that a wrapper points to.
pub(super) fn wrapped(image: &Image) -> Answer<Image> {
    // A pointer in a file means nothing.
    let Image::Memory(start) = image else { return Err(INVALID_IMAGE) };
    let inside = Image::at(start.cast::<*mut _>().pointer_at(1)?)?;
    if inside.begins_with(&MAGIC) { Ok(inside) } else { Err(INVALID_IMAGE) }
}

/// The text for the newest architecture that the device is not too old for.
pub(super) fn text(image: &Image) -> Result<String, Refused> {
    let (mut at, mut best) = (image.number(HEADER_LENGTH, 2)?, None);
    let end = at.saturating_add(image.number(ENTRIES_LENGTH, 8)?);
    while at < end {
        let entry = Entry::read(image, at, end)?;
        let newest = best.as_ref().map_or(0, |best: &Entry| best.architecture);
        if entry.kind == TEXT
            && (newest..=ARCHITECTURE_MAX).contains(&entry.architecture)
            && newest < entry.architecture
        {
            best = Some(entry);
        }
        at = entry.end;
    }
    let why = "the fat binary has no text for this device or an older one".to_owned();
    let found = best.ok_or(Refused { code: NO_BINARY_FOR_GPU, why })?;
    Image::Bytes(found.unpack(image)?).text().map_err(Refused::from)
}

/// An entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u64,
    architecture: u64,
    flags: u64,
    /// Where its bytes begin, and how many there are before and after unpacking.
    start: usize,
    bytes: usize,
    unpacked: usize,
    /// Where the next entry begins.
    end: usize,
}

impl Entry {
    fn read(image: &Image, at: usize, end: usize) -> Answer<Self> {
        let number = |offset, bytes| image.number(at + offset, bytes);
        let (header, length, packed) = (number(ENTRY_HEADER, 4)?, number(LENGTH, 8)?, number(COMPRESSED, 4)?);
        let flags = number(FLAGS, 8)? as u64;
        let is_packed = flags & (IS_LZ4 | IS_ZSTD) != 0;
        let (start, bytes) = (at + header, if is_packed { packed } else { length });
        let entry = Self {
            kind: number(KIND, 2)? as u64,
            architecture: number(ARCHITECTURE, 4)? as u64,
            flags,
            start,
            bytes,
            unpacked: number(UNPACKED, 8)?,
            end: start.checked_add(length).ok_or(INVALID_IMAGE)?,
        };
        if header < ENTRY_HEADER_MIN || entry.end > end || bytes > length { Err(INVALID_IMAGE) } else { Ok(entry) }
    }

    fn unpack(&self, image: &Image) -> Answer<Vec<u8>> {
        let bytes = image.bytes(self.start, self.bytes)?;
        let unpacked = match (self.flags & IS_LZ4 != 0, self.flags & IS_ZSTD != 0) {
            _ if self.unpacked > TEXT_MAX => return Err(INVALID_IMAGE),
            (false, false) => return Ok(bytes),
            (true, _) => lz4(&bytes, self.unpacked),
            (false, true) => zstd(&bytes, self.unpacked),
        };
        unpacked.map_err(|_| INVALID_IMAGE)
    }
}
