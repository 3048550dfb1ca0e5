//! libnccl (NCCL): collectives of several devices, in one process and over several.
//!
//! It comes with no toolkit but in packages of its own. What versions lack is `None` in the table, and calling it is an
//! error; the configuration of a communicator grew with the versions, and says itself how large it is.

#[expect(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::allow_attributes_without_reason,
    reason = "generated from the header"
)]
#[rustfmt::skip]
pub mod types;

#[expect(non_camel_case_types, non_snake_case, reason = "named after C functions")]
#[rustfmt::skip]
mod functions;

#[rustfmt::skip]
mod codes;
mod status;

pub use functions::Functions;
pub use types::ncclResult_t;

use self::types::{NCCL_VERSION_CODE, ncclConfig_t};
use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to NCCL that did not succeed.
pub type NcclError = CallError<ncclResult_t>;

/// How NCCL is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libnccl (NCCL)",
        override_variable: "CUDA_SYS_LIBNCCL",
        sonames: &["libnccl.so.2"],
        folders: &[],
        wheels: &["nvidia/nccl/lib"],
        landmark: "ncclGetVersion",
    },
    oldest: 2,
    ask: AskVersion::Code,
    companion: None,
};

toolkit_library!(Nccl, NcclError, INFO, "NCCL", "CUDA_SYS_LIBNCCL");

/// What marks a configuration as one.
const MAGIC: u32 = 0xcafe_beef;

impl ncclConfig_t {
    /// A configuration in which nothing is chosen: `NCCL_CONFIG_INITIALIZER` of the header.
    #[must_use]
    pub const fn initial() -> Self {
        const OPEN: i32 = i32::MIN;
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: NCCL_VERSION_CODE,
            blocking: OPEN,
            cgaClusterSize: OPEN,
            minCTAs: OPEN,
            maxCTAs: OPEN,
            netName: std::ptr::null(),
            splitShare: OPEN,
            trafficClass: OPEN,
            commName: std::ptr::null(),
            collnetEnable: OPEN,
            CTAPolicy: OPEN,
            shrinkShare: OPEN,
            nvlsCTAs: OPEN,
            nChannelsPerNetPeer: OPEN,
            nvlinkCentricSched: OPEN,
        }
    }
}
