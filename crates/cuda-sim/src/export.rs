//! What is known of each exported function.

use cuda_sys::driver::Functions;
use cuda_sys::{CUresult, CudaVersion};

use crate::codes::{
    ASSERT, CONTEXT_IS_DESTROYED, ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_PC, LAUNCH_FAILED, LAUNCH_TIMEOUT,
    MISALIGNED_ADDRESS, NOT_INITIALIZED, NVLINK_UNCORRECTABLE,
};

/// What must have happened before a function does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// `cuInit`, asked for before anything else.
    Init,
    /// `cuInit` and a current context, asked for before anything else.
    Context,
    /// `cuInit`, asked for after the arguments have been looked at.
    LateInit,
    /// `cuInit` and a context that works, found by a handle; what belonged to a context that ended has no handle any more.
    Handle,
    /// `cuInit` before anything else, then a context that works, found by a pointer.
    InitHandle,
    /// `cuInit` and a context, which may be a lost one, asked for after the arguments have been looked at.
    LostContext,
    /// `cuInit` and a context (the current one or that of a handle), asked for after the arguments have been looked at.
    LateContext,
}

/// A function that the simulated driver exports.
#[derive(Debug)]
pub struct Export {
    /// Its symbol, for example `cuMemAlloc_v2`.
    pub symbol: &'static str,
    /// The CUDA version that introduced this ABI of it.
    pub version: CudaVersion,
    /// What it needs first; decides which common codes it can answer with ([`Export::common_codes`]).
    pub needs: Needs,
    /// Every other code it can answer with, besides success and injected faults.
    pub codes: &'static [CUresult],
}

impl Export {
    /// The codes that come with what the function needs: not initialised, no context, a context that was lost.
    #[must_use]
    pub fn common_codes(&self) -> &'static [CUresult] {
        match self.needs {
            Needs::Nothing => &[],
            Needs::Init | Needs::LateInit => &[NOT_INITIALIZED],
            Needs::Handle | Needs::InitHandle => &[
                NOT_INITIALIZED,
                ILLEGAL_ADDRESS,
                LAUNCH_FAILED,
                LAUNCH_TIMEOUT,
                MISALIGNED_ADDRESS,
                ASSERT,
                INVALID_PC,
            ],
            Needs::LostContext => &[NOT_INITIALIZED, INVALID_CONTEXT, CONTEXT_IS_DESTROYED],
            Needs::Context | Needs::LateContext => &[
                NOT_INITIALIZED,
                INVALID_CONTEXT,
                CONTEXT_IS_DESTROYED,
                ILLEGAL_ADDRESS,
                LAUNCH_FAILED,
                LAUNCH_TIMEOUT,
                MISALIGNED_ADDRESS,
                ASSERT,
                INVALID_PC,
            ],
        }
    }

    /// Whether the function can answer with a code. Whatever answers that a kernel lost the context also answers that a link did;
    /// this needs a link that fails, so that it stands in no list of what calls alone bring about.
    #[must_use]
    pub fn may_answer(&self, code: CUresult) -> bool {
        let code = if code == NVLINK_UNCORRECTABLE { INVALID_PC } else { code };
        code == CUresult::CUDA_SUCCESS || self.codes.contains(&code) || self.common_codes().contains(&code)
    }
}

/// The version that the bindings give for a symbol; a symbol they do not have does not compile.
pub(crate) const fn version_of(symbol: &str) -> CudaVersion {
    let (mut low, mut high) = (0, Functions::ALL.len());
    while low < high {
        let middle = low.midpoint(high);
        match compare(Functions::ALL[middle].symbol.as_bytes(), symbol.as_bytes()) {
            0 => return Functions::ALL[middle].version,
            order if order < 0 => low = middle + 1,
            _ => high = middle,
        }
    }
    panic!("the bindings have no such symbol");
}

const fn compare(left: &[u8], right: &[u8]) -> i32 {
    let mut index = 0;
    while index < left.len() && index < right.len() {
        if left[index] != right[index] {
            return if left[index] < right[index] { -1 } else { 1 };
        }
        index += 1;
    }
    if left.len() == right.len() {
        return 0;
    }
    if left.len() < right.len() { -1 } else { 1 }
}
