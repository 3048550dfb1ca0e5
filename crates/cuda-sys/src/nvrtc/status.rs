//! Names of `nvrtcResult`.

use super::codes::NAMES;
use super::types::nvrtcResult;
use crate::toolkit::toolkit_status;

toolkit_status!(nvrtcResult, NVRTC_SUCCESS);
