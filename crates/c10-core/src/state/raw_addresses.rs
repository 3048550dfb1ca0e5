//! Addresses that were handed out without an owner.
//!
//! **Invariant:** an address is here from the moment it is handed out to a caller who keeps nothing but the number until
//! it is given back, and never while a buffer owns it. So giving an address back cannot take a buffer's memory away.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts with a lock each. The caller's threads seldom meet in one.
const PARTS: usize = 64;

/// Spreads addresses, which are multiples of 512, over the table.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, address: u64) {
        // A multiplication by an odd number keeps addresses apart and moves their low bits up.
        self.0 = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type Part = HashSet<u64, BuildHasherDefault<AddressHasher>>;

/// The addresses of one runtime.
#[derive(Debug)]
pub(crate) struct RawAddresses([Mutex<Part>; PARTS]);

impl Default for RawAddresses {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl RawAddresses {
    fn part(&self, address: u64) -> MutexGuard<'_, Part> {
        // The remainder is less than the number of parts.
        let part = usize::try_from((address >> 9) % PARTS as u64).unwrap_or(0);
        self.0[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an address that was just handed out.
    pub(crate) fn insert(&self, address: u64) {
        self.part(address).insert(address);
    }

    /// Forgets an address that is about to be given back, or gets an owner; whether it was here.
    pub(crate) fn take(&self, address: u64) -> bool {
        self.part(address).remove(&address)
    }

    /// Whether an address is here.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.part(address).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_once() {
        let addresses = RawAddresses::default();
        (1..1000).for_each(|block| addresses.insert(block * 512));
        assert!(addresses.contains(512) && !addresses.contains(513));
        assert!((1..1000).all(|block| addresses.take(block * 512) && !addresses.take(block * 512)));
    }
}
