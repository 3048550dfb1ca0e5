//! Names of `nvJitLinkResult`.

use super::codes::NAMES;
use super::types::nvJitLinkResult;
use crate::toolkit::toolkit_status;

toolkit_status!(nvJitLinkResult, NVJITLINK_SUCCESS);
