//! Names of `ncclResult_t`.

use super::codes::NAMES;
use super::types::ncclResult_t;
use crate::toolkit::toolkit_status;

toolkit_status!(ncclResult_t, ncclSuccess);
