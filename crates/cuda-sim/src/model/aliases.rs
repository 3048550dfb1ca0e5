//! Memory that is mapped at two addresses, and mappings that go while work may use them: misuse that hardware lets pass.
//!
//! What a copy, a set or a library touches is known to the byte when it is queued. Of a kernel only the addresses among
//! its parameters are known: it counts as touching the mappings that they lie in, from there on.
//!
//! **Invariant:** work is looked at when it is queued, beside the work that is not finished then: which of two pieces that
//! nothing orders is found depends on the seed, and of two that are ordered none is.

use super::engine::OpId;
use super::memory::{Endpoint, Source};
use super::{Effect, State};
use crate::codes::{Answer, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::report::ReportKind;

/// Addresses that work touches.
struct Touched {
    address: u64,
    /// `None`: to the end of the mapping.
    length: Option<u64>,
    writes: bool,
}

/// A part of the memory of a handle, with the address where that is mapped.
struct Part {
    handle: u64,
    base: u64,
    from: u64,
    to: u64,
    writes: bool,
}

impl Part {
    /// Whether both touch the same memory by different addresses, and one of them writes it.
    fn clashes(&self, other: &Self) -> bool {
        let is_same = self.handle == other.handle && self.from < other.to && other.from < self.to;
        is_same && self.base != other.base && (self.writes || other.writes)
    }
}

impl State {
    /// Reports work that is about to be queued behind `after` if earlier work that nothing orders with it uses the same
    /// memory by another address. In strict mode the context is lost.
    pub(super) fn check_aliases(&mut self, context: u64, after: &[OpId], effect: &Effect) {
        if !self.vmm.maps_any_twice() {
            return;
        }
        let mut new = self.parts(effect);
        new.retain(|part| self.vmm.is_mapped_twice(part.handle));
        if new.is_empty() {
            return;
        }
        let found = self.engine.pending().find_map(|(op, earlier)| {
            let earlier = self.parts(earlier);
            let (part, other) =
                new.iter().find_map(|part| Some((part, earlier.iter().find(|other| part.clashes(other))?)))?;
            let is_ordered = after.iter().any(|&before| self.engine.precedes(op, before));
            (!is_ordered).then(|| (part.base + part.from, other.base + other.from))
        });
        if let Some((address, other)) = found {
            let text = format!(
                "work uses the memory at {address:#x} that earlier work uses at {other:#x}, one of them writes it, and \
                 nothing orders the two"
            );
            self.report(ReportKind::UnorderedMappings, text);
            if self.config.strict {
                self.lose_context(context, ILLEGAL_ADDRESS);
            }
        }
    }

    /// Reports a mapping that goes while unfinished work may use it; an error in strict mode.
    pub(super) fn check_unmapped(&mut self, base: u64, length: u64) -> Answer {
        let used = self.vmm.mappings_in(base, length).map(|mapping| (mapping.base, mapping.length));
        let Some((address, _)) = used.into_iter().find(|&(base, length)| self.work_touches(base, length)) else {
            return Ok(());
        };
        let text = format!("memory at {address:#x} is unmapped while queued work still uses it");
        self.report(ReportKind::UnmappedWhilePending, text);
        if self.config.strict { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// The parts of mapped memory that work touches.
    fn parts(&self, effect: &Effect) -> Vec<Part> {
        let mut parts = Vec::new();
        for touched in touched(effect) {
            let until = touched.address.saturating_add(touched.length.unwrap_or(1));
            for mapping in self.vmm.mappings_in(touched.address, until - touched.address) {
                let to = if touched.length.is_some() { until - mapping.base } else { mapping.length };
                parts.push(Part {
                    handle: mapping.handle,
                    base: mapping.base,
                    from: touched.address.saturating_sub(mapping.base),
                    to: to.min(mapping.length),
                    writes: touched.writes,
                });
            }
        }
        parts
    }
}

/// What work touches, as far as that is known before it runs.
fn touched(effect: &Effect) -> Vec<Touched> {
    let exactly = |address: u64, length: u64, writes: bool| Touched { address, length: Some(length), writes };
    match effect {
        Effect::Copy(transfer) => {
            let span = |side: &Endpoint| side.span(transfer.width, transfer.height, transfer.depth).unwrap_or(0);
            let mut both = vec![exactly(transfer.to.address, span(&transfer.to), true)];
            if let Source::Memory(side) = &transfer.from {
                both.push(exactly(side.address, span(side), false));
            }
            both
        }
        Effect::Fill(fill) => {
            vec![exactly(fill.to.address, fill.to.span(fill.width, fill.height, 1).unwrap_or(0), true)]
        }
        Effect::WriteValue { address, value } => vec![exactly(*address, value.len() as u64, true)],
        Effect::WaitValue { address, width, .. } => vec![exactly(*address, *width, false)],
        Effect::Launch(launch) => match &launch.library {
            Some(work) => {
                let touches = work.known_touches().into_iter();
                touches.map(|touch| exactly(touch.address, touch.length, touch.how.writes())).collect()
            }
            None => launch.words().map(|address| Touched { address, length: None, writes: true }).collect(),
        },
        Effect::Nothing
        | Effect::Record { .. }
        | Effect::Host(_)
        | Effect::WaitElsewhere { .. }
        | Effect::Allocate { .. }
        | Effect::MovePages { .. }
        | Effect::SetConditions(_)
        | Effect::Conditional(_)
        | Effect::EndBody { .. }
        | Effect::FreeInOrder { .. } => Vec::new(),
    }
}
