//! How much of a file the readers accept.

/// Bounds on what is read. Memory while reading is at most about 50 bytes for each byte of the file, and for each
/// entry some 130 bytes of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest file, in bytes. At most 4 GiB less one byte are ever read.
    pub bytes_max: u64,
    /// How many values (numbers, texts, lists, dictionaries) a file may hold.
    pub values_max: u64,
    /// How many segments, blocks, trace entries, annotations and frames of stacks a snapshot may have together. A
    /// small file can hold the same list many times over; this is what bounds that.
    pub entries_max: u64,
    /// How deep lists and dictionaries may stand inside each other.
    pub depth_max: usize,
}

impl Default for Limits {
    /// 4 GiB, 400 million values, 20 million entries, depth 64.
    fn default() -> Self {
        Self { bytes_max: u64::from(u32::MAX), values_max: 400_000_000, entries_max: 20_000_000, depth_max: 64 }
    }
}
