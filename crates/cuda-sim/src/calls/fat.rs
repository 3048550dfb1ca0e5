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
const TEXT_MAX: usize = 1 << 28;

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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: u64 = 0x11;

    /// A container with a text, packed by LZ4 or plain, and with machine code.
    fn container(is_packed: bool) -> Vec<u8> {
        let text = ".version 7.8\n.target sm_80\n.address_size 64\n// text text text text text text text\n".repeat(3);
        let packed = lz4_flex::block::compress(text.as_bytes());
        let text = if is_packed {
            entry(1, 80, (PLAIN | IS_LZ4, packed.len() as u64), &packed, text.len() as u64)
        } else {
            entry(1, 80, (PLAIN, 0), text.as_bytes(), 0)
        };
        let entries = [entry(2, 90, (PLAIN, 0), b"\x7fELF code", 0), text].concat();
        [&MAGIC[..], &[1, 0, 16, 0], &(entries.len() as u64).to_le_bytes(), &entries].concat()
    }

    fn entry(kind: u16, architecture: u32, (flags, packed): (u64, u64), bytes: &[u8], unpacked: u64) -> Vec<u8> {
        let padded = bytes.len().next_multiple_of(8);
        let mut entry = vec![0; 80 + padded];
        let mut put = |at: usize, number: u64, width: usize| {
            entry[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        };
        put(KIND, u64::from(kind), 2);
        put(ENTRY_HEADER, 80, 4);
        put(LENGTH, padded as u64, 8);
        put(COMPRESSED, packed, 4);
        put(ARCHITECTURE, u64::from(architecture), 4);
        put(FLAGS, flags, 8);
        put(UNPACKED, unpacked, 8);
        entry[80..80 + bytes.len()].copy_from_slice(bytes);
        entry
    }

    /// A splitmix64 generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            usize::try_from((word ^ (word >> 31)) % limit as u64).unwrap()
        }
    }

    /// Changes a few bytes, cuts the end off or repeats a part.
    fn damaged(random: &mut Random, file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(file.len());
            match random.below(6) {
                0 => file.truncate(at + 1),
                1 => file.extend_from_within(at..),
                2 => {
                    let end = (at + 8).min(file.len());
                    file[at..end].fill(0xff);
                }
                _ => file[at] = u8::try_from([0, 1, 0x7f, 0x80, 0xff, random.below(256)][random.below(6)]).unwrap(),
            }
        }
        file
    }

    #[test]
    fn damaged_containers_are_refused_or_read() {
        let (mut random, mut read, mut refused) = (Random(1), 0, 0);
        for is_packed in [false, true] {
            let whole = container(is_packed);
            assert!(text(&Image::Bytes(whole.clone())).unwrap().starts_with(".version 7.8"));
            for _ in 0..20_000 {
                match Image::Bytes(damaged(&mut random, &whole)).texts() {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
    }

    #[test]
    fn damaged_linked_images_are_refused_or_read() {
        let texts = [".version 7.8\n", "", ".target sm_80\n"];
        let inner: Vec<u8> =
            texts.iter().flat_map(|text| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()).collect();
        let end = 16 + inner.len() as u64;
        let whole = [&b"\x7fPTXSIM\x01"[..], &end.to_le_bytes(), &inner].concat();
        assert_eq!(Image::Bytes(whole.clone()).texts().unwrap(), texts);
        let mut random = Random(2);
        for _ in 0..20_000 {
            let _ = Image::Bytes(damaged(&mut random, &whole)).texts();
        }
    }

    #[test]
    fn an_announced_size_takes_no_memory() {
        let packed = lz4_flex::block::compress(b"text");
        let huge = entry(1, 80, (PLAIN | IS_LZ4, packed.len() as u64), &packed, TEXT_MAX as u64);
        let file = [&MAGIC[..], &[1, 0, 16, 0], &(huge.len() as u64).to_le_bytes(), &huge].concat();
        let found = text(&Image::Bytes(file));
        assert!(found.is_err() || found.is_ok_and(|text| text == "text"));
    }
}
