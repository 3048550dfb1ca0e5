//! Whether a file is in the page cache.
//!
//! # Safety
//! One call of the C library reads into a buffer of this function.
#![expect(unsafe_code, reason = "reading what is in the page cache and nothing else")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// How many places are looked at.
const PLACES: u64 = 16;

/// Whether most of a file that is read through the page cache is there; asked at a few places, of which nothing is read
/// from the disk. `false` where the system cannot tell.
pub(crate) fn is_cached(file: &File, bytes: u64) -> bool {
    let step = (bytes / PLACES).max(1);
    let places = (0..bytes).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let (seen, there) = places.fold((0, 0), |(seen, there), at| (seen + 1, there + u64::from(is_there(file, at))));
    there * 4 >= seen * 3
}

/// Whether the byte at a position is in the page cache.
fn is_there(file: &File, at: u64) -> bool {
    let mut byte = 0_u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let Ok(at) = libc::off_t::try_from(at) else { return false };
    // SAFETY: the descriptor is open, and the vector names one byte that outlives the call.
    (unsafe { libc::preadv2(file.as_raw_fd(), &raw const to, 1, at, libc::RWF_NOWAIT) }) == 1
}

#[cfg(test)]
mod tests {
    use super::is_cached;

    #[test]
    fn what_was_just_written_is_there() {
        let path = std::env::temp_dir().join(format!("cuda-storage-cached-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let refuses = std::fs::read("/proc/mounts").is_err();
        assert!(is_cached(&file, 1 << 20) || refuses, "the page cache has it");
        assert!(!is_cached(&file, 1 << 40), "there is nothing behind the end");
        std::fs::remove_file(&path).unwrap();
    }
}
