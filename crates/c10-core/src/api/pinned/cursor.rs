//! Pinned memory as a file: reading, writing and seeking.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::api::pinned::PinnedBuffer;

/// A place in pinned memory to read and write at, as in a file whose length is fixed; made by [`PinnedBuffer::cursor`].
///
/// Reading and writing copies bytes. If the device writes the same bytes meanwhile, a mixture of old and new is read,
/// as by [`PinnedBuffer::read`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// let buffer = c10_core::PinnedBuffer::new(8)?;
/// let mut cursor = buffer.cursor();
/// write!(cursor, "{:05}", 42)?;
/// cursor.seek(SeekFrom::Start(3))?;
/// let mut end = [0; 2];
/// cursor.read_exact(&mut end)?;
/// assert_eq!(&end, b"42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PinnedCursor<'a> {
    buffer: &'a PinnedBuffer,
    position: u64,
}

impl PinnedBuffer {
    /// Reads and writes the memory as a file, from its beginning.
    #[must_use]
    pub fn cursor(&self) -> PinnedCursor<'_> {
        PinnedCursor { buffer: self, position: 0 }
    }
}

impl PinnedCursor<'_> {
    /// Where the next byte is read or written.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The position inside the memory, and how many of `wanted` bytes there are from there on.
    fn part(&self, wanted: usize) -> (usize, usize) {
        let len = self.buffer.len();
        let at = usize::try_from(self.position).unwrap_or(len).min(len);
        (at, wanted.min(len - at))
    }
}

impl Read for PinnedCursor<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let (at, bytes) = self.part(to.len());
        self.buffer.read(at, &mut to[..bytes]).map_err(io::Error::other)?;
        self.position += bytes as u64;
        Ok(bytes)
    }
}

/// Writes up to the end of the memory; there 0 bytes are written.
impl Write for PinnedCursor<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let (at, bytes) = self.part(from.len());
        self.buffer.write(at, &from[..bytes]).map_err(io::Error::other)?;
        self.position += bytes as u64;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Positions behind the end are allowed; nothing is read or written there.
impl Seek for PinnedCursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(position) => {
                self.position = position;
                return Ok(position);
            }
            SeekFrom::End(by) => (self.buffer.len() as u64, by),
            SeekFrom::Current(by) => (self.position, by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a position before the beginning");
        self.position = from.checked_add_signed(by).ok_or_else(before)?;
        Ok(self.position)
    }
}
