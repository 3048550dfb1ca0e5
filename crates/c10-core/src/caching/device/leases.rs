//! Room below a peak that passes from one shard to another.
//!
//! A shard whose leases do not cover a change would have to take all locks. While threads take turns at holding memory,
//! another shard most often has what is missing. Handing that over takes two locks: what one cap loses the other gains,
//! so their sum, and the peak, stay.
//!
//! **Invariant:** a thread that holds a shard's lock only tries to take another's, so nobody waits here.

use crate::caching::device::cache::DeviceCache;
use crate::caching::remote::ShardId;
use crate::caching::shard::{Clean, Shard, Taking};

/// Shards that are asked before all locks are taken.
const ASKED: u32 = 3;
/// Every so many requests no shard is asked and all locks are taken instead: only that shows whether the threads hold
/// memory at the same time, so that there is a new peak with room for all of them.
const REBALANCE_EVERY: u32 = 4;

impl DeviceCache {
    /// Gets what a shard's leases lack for a change from another shard; whether one had it to spare.
    #[cold]
    pub(super) fn borrow_lease(&self, shard: &Shard, borrower: &mut Clean<'_>, taking: &Taking) -> bool {
        let count = self.shared.shard_count();
        borrower.lease_requests = borrower.lease_requests.wrapping_add(1);
        let requests = borrower.lease_requests;
        if count == 1 || requests.is_multiple_of(REBALANCE_EVERY) {
            return false;
        }
        let need = borrower.ledger.shortage(taking.class, &taking.change);
        (0..ASKED).any(|step| {
            let distance = requests.wrapping_add(step) % (count - 1) + 1;
            let other = self.shared.shard(ShardId((shard.id.0 + distance) % count));
            let Some(other) = other.filter(|other| other.device == self.position) else { return false };
            let Some(lender) = other.try_lock() else { return false };
            // A dormant block was given back: what it took of the lease is free.
            lender.flush().ledger.pass(&mut borrower.ledger, taking.class, &need)
        })
    }
}
