//! Room below a peak that passes from one shard to another.
//!
//! A shard whose leases do not cover a change would have to take all locks. While threads take turns at holding memory,
//! another shard most often has just what is missing, and handing that over needs two locks: what one cap loses the other
//! gains, so their sum, and the peak, stay.
//!
//! **Invariant:** whoever holds a shard's lock only tries to take another's, so nobody waits here.

use crate::caching::device::hit::Device;
use crate::caching::remote::ShardId;
use crate::caching::shard::{Shard, ShardState, Taking};

/// Shards that are asked before all locks are taken.
const ASKED: u32 = 3;
/// Each so many times all locks are taken at once: whether the threads hold memory at the same time, so that there is a
/// new peak and room for all of them, is seen only then.
const LOOK: u32 = 4;

impl Device {
    /// Gets what a shard's leases lack for a change from another shard; whether one had it to spare.
    #[cold]
    pub(crate) fn borrow_lease(&self, shard: &Shard, state: &mut ShardState, taking: &Taking) -> bool {
        let made = self.shared.count();
        state.asked = state.asked.wrapping_add(1);
        if made == 1 || state.asked.is_multiple_of(LOOK) {
            return false;
        }
        let need = state.ledger.shortage(taking.class, &taking.change);
        (0..ASKED).any(|step| {
            let distance = state.asked.wrapping_add(step) % (made - 1) + 1;
            let other = self.shared.shard(ShardId((shard.id.0 + distance) % made));
            let Some(other) = other.filter(|other| other.device == self.position) else { return false };
            let Some(mut lender) = other.state.try_lock() else { return false };
            // A dormant block was given back: what it took of the lease is free.
            other.wake(&mut lender);
            lender.ledger.pass(&mut state.ledger, taking.class, &need)
        })
    }
}
