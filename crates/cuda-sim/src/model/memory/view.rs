//! Memory as a kernel sees it: single values at addresses of devices and of pinned host memory.
//!
//! The ranges found last are remembered, since threads touch the same ones again and again. Nothing is mapped or freed
//! while a kernel runs.

use std::collections::{BTreeMap, BTreeSet};

use super::bytes::{self, Bytes};
use super::{Look, Memory};
use crate::ptx::machine::{self, Fault};
use crate::report::ReportKind;

/// Ranges that are remembered.
const WINDOWS: usize = 4;

/// The most findings of a launch that are told; the others would say the same.
const FINDINGS_MAX: usize = 4;

/// An access that hardware lets pass although the program has no business there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) kind: ReportKind,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) what: &'static str,
}

/// A range of addresses with bytes behind it.
#[derive(Clone, Debug)]
struct Window {
    base: u64,
    length: u64,
    writable: bool,
    bytes: Bytes,
}

/// Memory for one launch.
#[derive(Debug)]
pub(crate) struct DeviceView<'m> {
    memory: &'m Memory,
    /// Devices whose memory the launch may touch.
    devices: &'m [u32],
    windows: Vec<Window>,
    findings: Vec<Access>,
    /// Conditions of conditional nodes that the launch may set.
    conditions: &'m BTreeSet<u64>,
    /// Those that it set, and to what.
    set: BTreeMap<u64, u32>,
}

impl<'m> DeviceView<'m> {
    pub(crate) fn new(memory: &'m Memory, devices: &'m [u32], conditions: &'m BTreeSet<u64>) -> Self {
        let (windows, findings, set) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { memory, devices, windows, findings, conditions, set }
    }

    /// What was noticed, and the conditions that were set.
    pub(crate) fn finish(self) -> (Vec<Access>, BTreeMap<u64, u32>) {
        (self.findings, self.set)
    }

    /// The bytes of an access, and how far into them it is.
    fn find(&mut self, address: u64, length: u64, writes: bool) -> Result<(Bytes, usize), Fault> {
        let holds =
            |window: &Window| address.checked_sub(window.base).is_some_and(|inside| inside + length <= window.length);
        let known = self.windows.iter().position(holds);
        let window = match known {
            Some(index) => &self.windows[index],
            None => {
                let found = self.look(address, length)?;
                self.windows.truncate(WINDOWS - 1);
                self.windows.insert(0, found);
                &self.windows[0]
            }
        };
        if writes && !window.writable {
            return Err(Fault::Address);
        }
        let inside = usize::try_from(address - window.base).map_err(|_| Fault::Address)?;
        Ok((window.bytes.clone(), inside))
    }

    /// The range that an access is in; at least the access itself.
    fn look(&mut self, address: u64, length: u64) -> Result<Window, Fault> {
        if !self.memory.is_device_address(address) {
            let (base, pinned) = self.memory.pinned_at(address).ok_or(Fault::Address)?;
            let all = self.memory.is_pinned(address, length);
            let window = Window { base, length: pinned.length, writable: true, bytes: Bytes::host(base) };
            return if all { Ok(window) } else { Err(Fault::Address) };
        }
        let (region_base, region) = self.memory.region_at(address).ok_or(Fault::Address)?;
        let inside = address - region_base;
        if !region.accessible
            || inside + length > region.length
            || !(region.is_mapping() || self.devices.contains(&region.device))
        {
            return Err(Fault::Address);
        }
        let (base, span) = match self.memory.allocation_at(address) {
            _ if region.is_mapping() => (region_base, region.length),
            Some(found) if found.present && found.covers(address, length) => (found.base, found.length),
            Some(_) | None => {
                self.note(address, length);
                (address, length)
            }
        };
        let offset = region.offset + usize::try_from(base - region_base).map_err(|_| Fault::Address)?;
        let bytes = Bytes::inside(&region.backing, offset);
        Ok(Window { base, length: span, writable: region.writable, bytes })
    }

    fn note(&mut self, address: u64, bytes: u64) {
        let (kind, what) = match self.memory.look_at(address, bytes) {
            Look::Fine | Look::Ghost | Look::Unmapped => return,
            Look::PastTheEnd => (ReportKind::OutOfBounds, "past the end of the allocation"),
            Look::Early => (ReportKind::UseBeforeAllocation, "which is not allocated yet"),
            Look::NotAllocated => (ReportKind::UseAfterFree, "which is not allocated"),
        };
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Access { kind, address, bytes, what });
        }
    }
}

impl machine::Memory for DeviceView<'_> {
    fn load(&mut self, address: u64, length: u64) -> Result<u64, Fault> {
        let (at, inside) = self.find(address, length, false)?;
        bytes::read_word(&at, inside, usize::try_from(length).unwrap_or(8)).ok_or(Fault::Address)
    }

    fn store(&mut self, address: u64, length: u64, value: u64) -> Result<(), Fault> {
        let (at, inside) = self.find(address, length, true)?;
        let count = usize::try_from(length).unwrap_or(8).min(8);
        if bytes::write_word(&at, inside, &value.to_le_bytes()[..count]) { Ok(()) } else { Err(Fault::Address) }
    }

    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault> {
        if !self.conditions.contains(&handle) {
            return Err(Fault::Address);
        }
        self.set.insert(handle, u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::machine::Memory as _;

    #[test]
    fn values_stay_inside_what_the_device_may_touch() {
        let mut memory = Memory::new(2, 1 << 30);
        let mine = memory.allocate(0, 1, 100).expect("fits");
        let other = memory.allocate(1, 2, 100).expect("fits");
        let none = BTreeSet::new();
        let mut view = DeviceView::new(&memory, &[0], &none);
        assert_eq!(view.store(mine + 8, 4, 0x0102_0304), Ok(()));
        assert_eq!(view.load(mine + 8, 2), Ok(0x0304));
        assert_eq!(view.load(other, 4), Err(Fault::Address));
        assert_eq!(view.load(16, 4), Err(Fault::Address));
        assert!(view.load(mine + 96, 8).is_ok(), "hardware does not notice");
        let kinds: Vec<_> = view.finish().0.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [ReportKind::OutOfBounds]);
    }
}
