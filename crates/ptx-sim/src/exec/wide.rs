//! The choice between two compilations of the same steps.
//!
//! # Safety
//! Each unsafe call enters a function that needs instructions of 256 bits, after the processor was asked for them.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls a function for a processor that was asked for it")
)]

use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::{Failure, Memory};
use super::step::{self, Turn};
use crate::arith::matrix::{self, Row};
use crate::program::action::MatrixMultiply;

/// Gives a warp its turn of so many steps.
pub(super) fn turn<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    steps: u64,
) -> Result<Turn, Failure> {
    #[cfg(target_arch = "x86_64")]
    if core.launch.wide && is_wide() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { wide(core, common, warp, steps) };
    }
    narrow(core, common, warp, steps)
}

/// `d = a * b + c` of matrices.
pub(super) fn multiply(may_be_wide: bool, what: &MatrixMultiply, [a, b, c]: [&[&Row]; 3], d: &mut [Row]) {
    #[cfg(target_arch = "x86_64")]
    if may_be_wide && is_wide() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { wide_multiply(what, [a, b, c], d) };
    }
    matrix::multiply(what, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn wide_multiply(what: &MatrixMultiply, [a, b, c]: [&[&Row]; 3], d: &mut [Row]) {
    matrix::multiply(what, a, b, c, d);
}

/// Whether the processor has the instructions that `wide` is compiled for.
#[cfg(target_arch = "x86_64")]
fn is_wide() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn wide<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    steps: u64,
) -> Result<Turn, Failure> {
    step::turn::<M, true>(core, common, warp, steps)
}

fn narrow<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    steps: u64,
) -> Result<Turn, Failure> {
    step::turn::<M, false>(core, common, warp, steps)
}
