//! Locks of single bytes of a file, which the system takes away when a process ends, however it ends.
//!
//! They belong to the opening of the file (`F_OFD_SETLK`) and not to the process: two openings exclude each other within one
//! process too, and a lock stays where another descriptor of the file is closed. A forked child has a part in the locks of
//! its parent's openings.
//!
//! # Safety
//! Every unsafe block is one call of the system with an open descriptor and a structure that outlives the call.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What a byte of a file is locked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByteLock {
    /// Others may lock it so too.
    Shared,
    /// Nobody else may lock it.
    Exclusive,
    /// Not any more.
    Unlocked,
}

impl ByteLock {
    /// Changes the lock of a byte, where no other opening of the file is in the way; whether it was so.
    pub(crate) fn try_set(self, file: &File, at: u64) -> io::Result<bool> {
        match self.call(file, at, libc::F_OFD_SETLK) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes the lock of a byte when no other opening of the file is in the way any more.
    pub(crate) fn set(self, file: &File, at: u64) -> io::Result<()> {
        loop {
            match self.call(file, at, libc::F_OFD_SETLKW) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => return answer,
            }
        }
    }

    fn call(self, file: &File, at: u64, command: i32) -> io::Result<()> {
        let kind = match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
            Self::Unlocked => libc::F_UNLCK,
        };
        let short = |number: i32| i16::try_from(number).unwrap_or(i16::MAX);
        let lock = libc::flock {
            l_type: short(kind),
            l_whence: short(libc::SEEK_SET),
            l_start: i64::try_from(at).unwrap_or(i64::MAX),
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the structure outlives the call.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn two_openings_exclude_each_other_byte_by_byte() {
        let path = std::env::temp_dir().join(format!("c10-locks-{}", std::process::id()));
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (one, other) = (open(), open());
        std::fs::remove_file(&path).unwrap();
        assert!(ByteLock::Shared.try_set(&one, 5).unwrap());
        assert!(ByteLock::Shared.try_set(&other, 5).unwrap());
        assert!(!ByteLock::Exclusive.try_set(&other, 5).unwrap());
        assert!(ByteLock::Exclusive.try_set(&other, 6).unwrap());
        ByteLock::Unlocked.set(&one, 5).unwrap();
        assert!(ByteLock::Exclusive.try_set(&other, 5).unwrap());
        drop(other);
        ByteLock::Exclusive.set(&one, 5).unwrap();
    }
}
