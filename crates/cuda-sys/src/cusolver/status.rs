//! Names of `cusolverStatus_t`.

use super::codes::NAMES;
use super::types::cusolverStatus_t;
use crate::toolkit::toolkit_status;

toolkit_status!(cusolverStatus_t, CUSOLVER_STATUS_SUCCESS);
