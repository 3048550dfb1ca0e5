//! Tests of the whole allocator, on one fake driver.

mod differential;
mod figures;
mod golden;
mod naive;
mod restore;
pub(crate) mod scripts;
mod unseen;

// What every file here uses.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::caching::*;
use crate::thread;
