//! What the files of cases have in common.

pub(super) use std::ffi::c_void;
pub(super) use std::ptr;
pub(super) use std::sync::atomic::Ordering;

pub(super) use cuda_sys::driver::types::*;

pub(super) use super::Needs;
pub(super) use super::case::cases;
pub(super) use super::cuda::{CaseResult, Cleanup, Cuda, Loose, Stop};
pub(super) use super::kit::*;
