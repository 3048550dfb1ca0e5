//! Names of `cufftResult`.

use super::codes::NAMES;
use super::types::cufftResult_t;
use crate::toolkit::toolkit_status;

toolkit_status!(cufftResult_t, CUFFT_SUCCESS);
