//! NVTX: the tool that is attached to the process, and domains that end.
//!
//! Nothing here is a call of the driver. A tool is C code that the environment names, as the driver is.
//!
//! # Safety
//! The unsafe blocks are a call that takes nothing, and the end of a domain by the only value that has its handle.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::nvtx::{Attachment, DomainHandle, StringHandle, Tool};

use crate::base::warning::warning;

/// The tool that is attached. The first call looks for one, and warns of one that cannot be attached.
#[inline]
pub(crate) fn tool() -> Option<Tool> {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.load(Ordering::Relaxed) {
        first_look(&LOOKED);
    }
    cuda_sys::nvtx::tool()
}

#[cold]
fn first_look(looked: &AtomicBool) {
    // There is no answer while a tool starts and calls back.
    let Some(attachment) = cuda_sys::nvtx::attachment() else { return };
    if let Attachment::Failed(path, reason) = attachment
        && !looked.swap(true, Ordering::Relaxed)
    {
        warning!("the NVTX tool {} is not attached: {reason}", path.display());
    }
    looked.store(true, Ordering::Relaxed);
}

/// A domain of a tool, which ends with this value.
#[derive(Debug)]
pub(crate) struct ToolDomain {
    pub(crate) tool: Tool,
    pub(crate) handle: DomainHandle,
}

impl Drop for ToolDomain {
    fn drop(&mut self) {
        // SAFETY: this value is the only one with the handle; texts of the domain keep it.
        unsafe { self.tool.domain_destroy(&self.handle) };
    }
}

/// A text that a tool knows. It keeps its domain.
#[derive(Debug, Clone)]
pub(crate) struct ToolText {
    pub(crate) domain: std::sync::Arc<ToolDomain>,
    pub(crate) handle: StringHandle,
}

/// The operating system's number of this thread.
pub(crate) fn os_thread() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    thread.cast_unsigned()
}
