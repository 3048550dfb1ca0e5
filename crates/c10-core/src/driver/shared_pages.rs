//! Pages of memory for other processes: as file descriptors, which a receiver takes over from the sender's process.
//!
//! Memory that was made with `cuMemCreate` has no handle of `cuIpcGetMemHandle`. Each page has a descriptor instead. The
//! sender keeps the descriptors open; the receiver names the sender's process and the numbers, and the system gives it
//! copies (`pidfd_getfd`), if the one process may trace the other. Where it may not, it asks the sender on a socket. The
//! receiver puts the pages behind a range of its own, which is as large as they are.
//!
//! **Invariants:** pages that were received are listed like those that this process has made, so that what a failed call
//! left behind is undone later. Descriptors are closed as soon as the driver has read them.
//!
//! # Safety
//! Every unsafe block is one call: through the function table, with out pointers that are locals, or of the system, with
//! numbers alone. Page handles are alive: the caller holds the memory.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;

use cuda_sys::driver::types::{CUdevice_attribute, CUmemAllocationHandleType};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::PageHandle;
use crate::base::process::start_of;
use crate::driver::Api;

const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// PyTorch's variable; 0 makes pages that stay in the process.
const VARIABLE: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

impl Api {
    /// The kinds of handles that pages of a device can be exported as.
    pub(super) fn page_handle_types(&self, device: DeviceIndex) -> CUmemAllocationHandleType {
        if self.exports_pages(device) { DESCRIPTOR } else { CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE }
    }

    /// Whether pages of a device are made so that other processes can have them.
    pub(crate) fn exports_pages(&self, device: DeviceIndex) -> bool {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        let ask = || {
            let allowed = std::env::var(VARIABLE).as_deref() != Ok("0");
            allowed && self.attribute(device, attribute).is_ok_and(|supported| supported != 0)
        };
        self.known_exports(device).is_some_and(|known| *known.get_or_init(ask))
    }

    /// A descriptor of a page that was made to be exported.
    pub(crate) fn export_page(&self, device: DeviceIndex, page: PageHandle) -> Result<OwnedFd> {
        self.bind(device)?;
        let mut number: i32 = -1;
        // SAFETY: `number` outlives the call, and the page is alive.
        unsafe {
            self.table.cuMemExportToShareableHandle(ptr::from_mut(&mut number).cast::<c_void>(), page.0, DESCRIPTOR, 0)
        }?;
        // SAFETY: the driver has opened the descriptor for the caller, who alone has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: numbers alone. Where it fails, programs that are started meanwhile have the descriptor too.
        unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(descriptor)
    }

    /// Puts pages of another process behind a reserved range. What could not be undone after a failure is undone by
    /// [`Self::release_imported`].
    pub(crate) fn map_imported(&self, device: DeviceIndex, base: u64, page: u64, from: Vec<OwnedFd>) -> Result<()> {
        self.bind(device)?;
        let imported: Result<Vec<PageHandle>> = from.into_iter().try_fold(Vec::new(), |mut pages, descriptor| {
            match self.import_page(&descriptor) {
                Ok(handle) => pages.push(handle),
                Err(error) => {
                    self.drop_pages(pages);
                    return Err(error);
                }
            }
            Ok(pages)
        });
        self.map_pages_of_others(device, base, page, imported?)
    }

    fn import_page(&self, descriptor: &OwnedFd) -> Result<PageHandle> {
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let mut handle = 0;
        // SAFETY: `handle` outlives the call; a descriptor is passed as the number that a pointer would be.
        unsafe {
            self.table.cuMemImportFromShareableHandle(&mut handle, ptr::without_provenance_mut(number), DESCRIPTOR)
        }?;
        Ok(PageHandle(handle))
    }

    /// Takes received pages away and gives their range back. May be tried again after a failure.
    pub(crate) fn release_imported(&self, device: DeviceIndex, base: u64, bytes: u64, page: u64) -> Result<()> {
        self.unmap_and_release(device, base, bytes, page).1?;
        self.address_free(device, base, bytes)
    }
}

/// A process, also for others that number processes differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessName {
    pub(crate) number: u32,
    /// When it was started; 0 where the system does not tell.
    pub(crate) started: u64,
    /// Who numbers it so: the inode of its namespace, 0 where the system does not tell.
    pub(crate) namespace: u64,
}

impl ProcessName {
    /// This process.
    pub(crate) fn own() -> Self {
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |of| of.ino());
        Self { number: std::process::id(), started: start_of("self").unwrap_or(0), namespace }
    }

    /// An error where the number is that of another process here.
    fn check(&self) -> io::Result<()> {
        if self.namespace != Self::own().namespace {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let is_it = start_of(&self.number.to_string()).unwrap_or(0) == self.started;
        if is_it { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }
}

/// Copies of another process's descriptors.
pub(crate) fn take_descriptors(process: &ProcessName, numbers: &[i32]) -> io::Result<Vec<OwnedFd>> {
    process.check()?;
    let process = opened(
        // SAFETY: numbers alone.
        unsafe { libc::syscall(libc::SYS_pidfd_open, process.number, 0) },
    )?;
    let take = |number: &i32| {
        // SAFETY: numbers alone.
        opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), *number, 0) })
    };
    numbers.iter().map(take).collect()
}

/// What a call of the system opened.
fn opened(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the system has opened the descriptor for this call.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn descriptors_are_copied_from_a_process() {
        let file = File::open("/proc/self/cmdline").unwrap();
        let own = ProcessName::own();
        let taken = take_descriptors(&own, &[file.as_raw_fd(), file.as_raw_fd()]).unwrap();
        assert_eq!(taken.len(), 2);
        let mut text = Vec::new();
        File::from(taken.into_iter().next().unwrap()).read_to_end(&mut text).unwrap();
        assert!(!text.is_empty());
        let refused = take_descriptors(&own, &[-1]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        for gone in [ProcessName { number: 0x7FFF_FFFF, ..own }, ProcessName { started: own.started + 1, ..own }] {
            assert_eq!(take_descriptors(&gone, &[0]).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
        let elsewhere = ProcessName { namespace: own.namespace + 1, ..own };
        assert_eq!(take_descriptors(&elsewhere, &[0]).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
