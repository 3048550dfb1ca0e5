//! Matrices that the lanes of a warp hold together.

use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::{Fault, Memory};
use super::reach::Stop;
use super::rows::Base;
use crate::program::action::WarpOp;

pub(super) fn execute<'m, M: Memory<'m>>(
    _core: &mut Core<'_, 'm, M>,
    _common: &mut Common,
    _warp: &mut Warp,
    _base: Base,
    _op: &WarpOp,
    _active: u32,
) -> Result<(), Stop> {
    Err(Stop { fault: Fault::Trap, lane: 0, address: 0 })
}
