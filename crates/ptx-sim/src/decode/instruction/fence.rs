//! `membar` and `fence`. One order of memory is kept by every executor here, so that all forms are one action.

use super::reader::Reader;
use crate::program::action::Action;
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

pub(super) fn membar(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let words = reader.take_all();
    let fits = match words.as_slice() {
        ["cta" | "gl" | "sys"] => true,
        ["proxy", kind] => is_proxy(kind),
        _ => false,
    };
    finish(reader, fits)
}

/// Kinds of proxies that a fence of both directions names.
fn is_proxy(kind: &str) -> bool {
    matches!(kind, "alias" | "async" | "async.global" | "async.shared::cta" | "async.shared::cluster")
}

pub(super) fn fence(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let words = reader.take_all();
    let is_scope = |word: &str| matches!(word, "cta" | "cluster" | "gpu" | "sys");
    let fits = match words.as_slice() {
        [scope] => is_scope(scope),
        ["sc" | "acq_rel" | "acquire" | "release", scope] => is_scope(scope),
        ["acquire", "sync_restrict::shared::cluster", "cluster"] => true,
        ["release", "sync_restrict::shared::cta", "cluster"] => true,
        ["mbarrier_init", "release", "cluster"] => true,
        ["proxy", kind] => is_proxy(kind),
        ["proxy", "async", "global" | "shared::cta" | "shared::cluster"] => true,
        ["proxy", "tensormap::generic", "release", scope] => is_scope(scope),
        ["proxy", "tensormap::generic", "acquire", scope] => return acquire_map(reader, is_scope(scope)),
        ["proxy", "async::generic", "acquire", "sync_restrict::shared::cluster", "cluster"] => true,
        ["proxy", "async::generic", "release", "sync_restrict::shared::cta", "cluster"] => true,
        _ => false,
    };
    finish(reader, fits)
}

/// The fence that names the map whose new contents are to be seen.
fn acquire_map(reader: &mut Reader<'_, '_, '_>, fits: bool) -> Result<(), Refusal> {
    let [at @ Operand::Address(..), Operand::Integer(128)] = reader.operands()? else {
        return Err(reader.invalid("wrong operands"));
    };
    reader.address(at, super::operands::SpaceWord::Generic)?;
    if !fits {
        return Err(reader.invalid("wrong form"));
    }
    reader.push(Action::Fence);
    Ok(())
}

fn finish(reader: &mut Reader<'_, '_, '_>, fits: bool) -> Result<(), Refusal> {
    let [] = reader.operands()?;
    if !fits {
        return Err(reader.invalid("wrong form"));
    }
    reader.push(Action::Fence);
    Ok(())
}
