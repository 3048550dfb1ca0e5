//! From an address that was handed out to its block.
//!
//! **Invariant:** holds exactly the addresses of allocated blocks. Sharded, so that threads that free at the same
//! time seldom meet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::caching::block::BlockId;
use crate::device::DeviceIndex;

const SHARDS: usize = 64;

/// Where an address belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: DeviceIndex,
    pub(crate) block: BlockId,
}

type Shard = HashMap<u64, Place, BuildHasherDefault<AddressHasher>>;

/// The map.
#[derive(Debug)]
pub(crate) struct Pointers {
    shards: Box<[Mutex<Shard>]>,
}

impl Pointers {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn insert(&self, address: u64, place: Place) {
        let before = self.shard(address).insert(address, place);
        debug_assert_eq!(before, None, "an address was handed out twice");
    }

    pub(crate) fn remove(&self, address: u64) -> Option<Place> {
        self.shard(address).remove(&address)
    }

    pub(crate) fn get(&self, address: u64) -> Option<Place> {
        self.shard(address).get(&address).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    fn shard(&self, address: u64) -> MutexGuard<'_, Shard> {
        let index = usize::try_from(mix(address) % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Spreads addresses, whose low nine bits are zero, over all bits.
fn mix(address: u64) -> u64 {
    let product = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// Hashes one address.
#[derive(Default, Debug)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // Shards took the low bits of the same mix, so this one is turned.
        self.0 = (self.0 ^ mix(value)).rotate_left(29);
    }
}
