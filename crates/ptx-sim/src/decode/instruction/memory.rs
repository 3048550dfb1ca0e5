//! Loads, stores, copies and hints.
//!
//! **Invariant:** what a hint says about caches changes nothing; every hint that PTX has is known by its word.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has any other form is refused")]

use super::operands::SpaceWord;
use super::reader::Reader;
use crate::program::action::{Action, Load, Order, Store};
use crate::program::scalar::{Modes, ScalarOp};
use crate::program::types::{Kind, Register, Space, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

/// What a load or a store says before its operands.
struct Head {
    order: Order,
    word: SpaceWord,
    /// Whether a cache policy is the last operand.
    policy: bool,
}

impl Head {
    /// Reads it; `operators` are what may be said about caches.
    fn read(reader: &mut Reader<'_, '_, '_>, operators: &[&str], is_load: bool) -> Result<Self, Refusal> {
        let (is_weak, is_volatile, mmio) = (reader.takes("weak"), reader.takes("volatile"), reader.takes("mmio"));
        let order = if is_weak || is_volatile { Order::Weak } else { order(reader, mmio, is_load)? };
        let word = reader.space();
        let operator = reader.take(|word| operators.contains(&word).then_some(()));
        let in_memory = matches!(word, SpaceWord::Generic | SpaceWord::Global);
        let is_read_only = matches!(word, SpaceWord::Const | SpaceWord::Parameter);
        let is_strong = order != Order::Weak;
        let fits = (!is_strong || !is_read_only && word != SpaceWord::Local)
            && (!is_volatile || !is_read_only)
            && (!mmio || in_memory)
            && (operator.is_none() || !is_strong && !is_volatile);
        let evicts = reader.take(evicts).is_some();
        let fetches = is_load && reader.take(fetches).is_some();
        let policy = reader.takes("L2::cache_hint");
        let hints = (!evicts && !policy || in_memory && !is_volatile && !mmio) && (!fetches || in_memory && !mmio);
        if !fits || !hints {
            return Err(reader.invalid("modifiers do not fit each other or the state space"));
        }
        Ok(Self { order: if is_volatile { Order::Relaxed } else { order }, word, policy })
    }
}

/// Takes an order and its scope.
fn order(reader: &mut Reader<'_, '_, '_>, mmio: bool, is_load: bool) -> Result<Order, Refusal> {
    let order = if reader.takes("relaxed") {
        Order::Relaxed
    } else if mmio {
        return Err(reader.invalid("'.relaxed' is missing"));
    } else if is_load && reader.takes("acquire") {
        Order::Acquire
    } else if !is_load && reader.takes("release") {
        Order::Release
    } else {
        return Ok(Order::Weak);
    };
    match scope(reader) {
        Some(sys) if sys || !mmio => Ok(order),
        _ => Err(reader.invalid("the scope is missing")),
    }
}

/// Takes a scope, and tells whether it is the system.
pub(super) fn scope(reader: &mut Reader<'_, '_, '_>) -> Option<bool> {
    reader.take(|word| match word {
        "cta" | "cluster" | "gpu" => Some(false),
        "sys" => Some(true),
        _ => None,
    })
}

/// What a line's place in the first cache is to be.
fn evicts(word: &str) -> Option<()> {
    let words = ["L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"];
    words.contains(&word).then_some(())
}

/// How much is fetched into the second cache.
fn fetches(word: &str) -> Option<()> {
    matches!(word, "L2::64B" | "L2::128B" | "L2::256B").then_some(())
}

/// The operands, less a cache policy where there must be one.
fn without_policy<'r, 't>(reader: &mut Reader<'r, 't, '_>, policy: bool) -> Result<&'r [Operand<'t>], Refusal> {
    let operands = reader.text.operands.as_slice();
    if !policy {
        return Ok(operands);
    }
    let Some((last, rest)) = operands.split_last() else { return Err(reader.invalid("the cache policy is missing")) };
    reader.value(last, Type::B64)?;
    Ok(rest)
}

fn vector(reader: &mut Reader<'_, '_, '_>) -> usize {
    reader
        .take(|word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        })
        .unwrap_or(1)
}

/// The operands of an access to several elements.
pub(super) fn elements<'o, 't>(
    reader: &Reader<'_, '_, '_>,
    operand: &'o Operand<'t>,
    count: usize,
) -> Result<&'o [Operand<'t>], Refusal> {
    match operand {
        Operand::List(list) if list.len() == count && count > 1 => Ok(list),
        Operand::List(_) => Err(reader.invalid("wrong number of elements")),
        operand if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(reader.invalid("wrong number of elements")),
    }
}

fn data_type(reader: &mut Reader<'_, '_, '_>, count: usize) -> Result<Type, Refusal> {
    let ty = reader.ty_of(|ty| {
        !ty.packed && ty.kind != Kind::Predicate && (!ty.is_float() || matches!(ty, Type::F32 | Type::F64))
    })?;
    if usize::from(ty.bits) * count > 128 { Err(reader.invalid("more than 128 bits")) } else { Ok(ty) }
}

pub(super) fn ld(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let cached = reader.takes("nc");
    if cached && (reader.has("weak") || reader.has("volatile")) {
        return Err(reader.invalid("'.nc' does not fit"));
    }
    let operators: &[&str] = if cached { &["ca", "cg", "cs"] } else { &["ca", "cg", "cs", "lu", "cv"] };
    let Head { order, word, policy } = Head::read(reader, operators, true)?;
    if cached && (word != SpaceWord::Global || order != Order::Weak) {
        return Err(reader.invalid("'.nc' does not fit"));
    }
    let count = vector(reader);
    let ty = data_type(reader, count)?;
    let [to, from] = without_policy(reader, policy)? else { return Err(reader.invalid("wrong number of operands")) };
    let mut results = Vec::new();
    for element in elements(reader, to, count)? {
        results.push(match element {
            Operand::Sink if count > 1 => None,
            element => Some(reader.to_wide(element, ty.bits)?),
        });
    }
    if results.iter().flatten().any(|to| to.is_predicate()) {
        return Err(reader.invalid("a predicate as the result"));
    }
    let (space, from) = reader.address(from, word)?;
    reader.push(Action::Load(Load { space, ty, order, to: results, from }));
    Ok(())
}

pub(super) fn ldu(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let word = reader.space();
    if !matches!(word, SpaceWord::Global | SpaceWord::Generic) {
        return Err(reader.invalid("wrong state space"));
    }
    let count = vector(reader);
    let ty = data_type(reader, count)?;
    let [to, from] = reader.operands()?;
    let mut results = Vec::new();
    for element in elements(reader, to, count)? {
        results.push(Some(reader.to_wide(element, ty.bits)?));
    }
    let (space, from) = reader.address(from, word)?;
    reader.push(Action::Load(Load { space, ty, order: Order::Weak, to: results, from }));
    Ok(())
}

pub(super) fn st(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let Head { order, word, policy } = Head::read(reader, &["wb", "cg", "cs", "wt"], false)?;
    let count = vector(reader);
    let ty = data_type(reader, count)?;
    let [to, from] = without_policy(reader, policy)? else { return Err(reader.invalid("wrong number of operands")) };
    let mut values = Vec::new();
    for element in elements(reader, from, count)? {
        values.push(reader.value_wide(element, ty)?);
    }
    let (space, to) = reader.address(to, word)?;
    if word == SpaceWord::Const {
        return Err(reader.invalid("the state space is only read"));
    }
    if space == Space::Parameters {
        return Err(reader.unsupported("parameters of a launch are only read"));
    }
    reader.push(Action::Store(Store { space, ty, order, to, from: values }));
    Ok(())
}

/// `cp.async` and what waits for it.
pub(super) fn cp(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("async")?;
    if reader.takes("commit_group") {
        let [] = reader.operands()?;
        reader.push(Action::CommitCopies);
        return Ok(());
    }
    if reader.takes("wait_all") {
        let [] = reader.operands()?;
        reader.push(Action::WaitCopies { outstanding: 0, all: true });
        return Ok(());
    }
    if reader.takes("wait_group") {
        let [Operand::Integer(count)] = reader.operands()? else { return Err(reader.invalid("no constant")) };
        let outstanding = u32::try_from(*count).map_err(|_| reader.invalid("the constant is too great"))?;
        reader.push(Action::WaitCopies { outstanding, all: false });
        return Ok(());
    }
    copy(reader)
}

fn copy(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let whole_lines = reader.takes("cg");
    if !whole_lines {
        reader.needs("ca")?;
    }
    if !reader.takes("shared") {
        reader.needs("shared::cta")?;
    }
    reader.needs("global")?;
    reader.take(fetches);
    let policy = reader.takes("L2::cache_hint");
    let (to, from, size, rest) = match without_policy(reader, policy)? {
        [to, from, Operand::Integer(size), rest @ ..] if rest.len() <= 1 => (to, from, *size, rest.first()),
        _ => return Err(reader.invalid("wrong operands")),
    };
    let bytes = match size {
        16 => 16,
        4 if !whole_lines => 4,
        8 if !whole_lines => 8,
        _ => return Err(reader.invalid("wrong number of bytes")),
    };
    let (_, to) = reader.address(to, SpaceWord::Shared)?;
    let (_, from) = reader.address(from, SpaceWord::Global)?;
    let (mut read, mut unless) = (None, None);
    if let Some(rest) = rest {
        match rest {
            Operand::Name(name) if reader.names.register(name).is_some_and(Register::is_predicate) => {
                unless = Some(reader.register(name)?);
            }
            Operand::Not(name) => {
                let (negated, at) = (reader.register(name)?, reader.text.at);
                if !negated.is_predicate() {
                    return Err(reader.invalid("no predicate as an operand"));
                }
                let to = reader.names.scratch(1, at)?;
                reader.scalar(ScalarOp::Not, Type::PREDICATE, Modes::PLAIN, to, &[negated]);
                unless = Some(to);
            }
            rest => read = Some(reader.value(rest, Type::U32)?),
        }
    }
    reader.push(Action::CopyAsync { to, from, bytes, read, unless });
    Ok(())
}

/// `prefetch` and `prefetchu`, which change nothing. The address must be one all the same.
pub(super) fn prefetch(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let word = reader.space();
    let level = reader
        .take(|word| matches!(word, "L1" | "L2").then_some(true))
        .or_else(|| reader.take(|word| matches!(word, "L2::evict_last" | "L2::evict_normal").then_some(false)));
    let is_uniform = reader.text.word.starts_with("prefetchu");
    let fits = match level {
        _ if is_uniform => reader.text.word == "prefetchu.L1",
        Some(true) => matches!(word, SpaceWord::Generic | SpaceWord::Global | SpaceWord::Local),
        Some(false) => matches!(word, SpaceWord::Generic | SpaceWord::Global),
        None => false,
    };
    let [at] = reader.operands()?;
    if !fits {
        return Err(reader.invalid("the cache level is missing or does not fit"));
    }
    reader.address(at, word)?;
    reader.push(Action::Nothing);
    Ok(())
}

/// `discard` and `applypriority` of 128 bytes, which change nothing.
pub(super) fn line(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let word = reader.space();
    let level = if reader.text.word.starts_with("discard") { "L2" } else { "L2::evict_normal" };
    reader.needs(level)?;
    let [at, Operand::Integer(128)] = reader.operands()? else { return Err(reader.invalid("wrong operands")) };
    if !matches!(word, SpaceWord::Generic | SpaceWord::Global) {
        return Err(reader.invalid("wrong state space"));
    }
    reader.address(at, word)?;
    reader.push(Action::Nothing);
    Ok(())
}

/// `createpolicy`: policies change nothing, so that all of them are 0.
pub(super) fn createpolicy(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("b64")?;
    let words = reader.take_all();
    let is_first =
        |word: &str| matches!(word, "L2::evict_last" | "L2::evict_normal" | "L2::evict_first" | "L2::evict_unchanged");
    let are_levels = |words: &[&str]| match words {
        [first] | [first, "L2::evict_first" | "L2::evict_unchanged"] => is_first(first),
        _ => false,
    };
    let (fits, most) = match words.as_slice() {
        ["fractional", levels @ ..] => (are_levels(levels), 2),
        ["range", "global", levels @ ..] | ["range", levels @ ..] => (are_levels(levels), 4),
        ["cvt", "L2"] => (true, 2),
        _ => (false, 0),
    };
    let Some((to, rest)) = reader.text.operands.split_first() else {
        return Err(reader.invalid("wrong number of operands"));
    };
    if !fits || rest.len() >= most {
        return Err(reader.invalid("wrong form"));
    }
    let to = reader.to(to, 64)?;
    let zero = reader.names.constant(64, 0, reader.text.at)?;
    reader.scalar(ScalarOp::Move, Type::B64, Modes::PLAIN, to, &[zero]);
    Ok(())
}
