//! Private pools of a device and the scopes that route allocations to them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::base::error::{Error, PoolError, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::caching::pools::{Filter, PoolOptions, PrivatePool, Scope, SegmentSource};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::growth::Growth;
use crate::sync::lock;

impl DeviceAllocator {
    /// Counts a use of a pool that nobody uses any more; whether there was such a pool.
    pub(crate) fn revive_pool(&self, id: PoolId) -> bool {
        let mut growth = lock(&self.growth);
        match growth.private.get_mut(&id).filter(|pool| pool.use_count == 0) {
            Some(pool) => {
                pool.use_count = 1;
                true
            }
            None => false,
        }
    }

    /// Routes allocations that `filter` takes to a private pool, from now on.
    pub(crate) fn begin_allocate_to_pool(&self, id: PoolId, filter: Filter) -> Result<()> {
        if lock(&self.growth).scopes.iter().any(|scope| scope.pool == id) {
            return Err(Error::Pool(PoolError::AlreadyRecording));
        }
        self.use_pool(id, PoolOptions::default())?;
        lock(&self.growth).scopes.push(Scope { pool: id, filter });
        self.cache.scopes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Stops routing allocations to a private pool.
    pub(crate) fn end_allocate_to_pool(&self, id: PoolId) -> Result<()> {
        let scopes = &mut lock(&self.growth).scopes;
        let position = scopes.iter().position(|scope| scope.pool == id).ok_or(Error::Pool(PoolError::NotRecording))?;
        scopes.remove(position);
        self.cache.scopes.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts one more use of a private pool, which is made with these options if need be.
    pub(crate) fn use_pool(&self, id: PoolId, options: PoolOptions) -> Result<()> {
        let mut growth = lock(&self.growth);
        if let Some(pool) = growth.private.get_mut(&id) {
            if pool.use_count == 0 {
                return Err(Error::Pool(PoolError::Released));
            }
            pool.use_count += 1;
            return Ok(());
        }
        let use_on_oom = options.use_on_oom;
        let pool = growth.pools.add(id, options);
        growth.private.insert(id, PrivatePool::new(pool));
        if use_on_oom {
            growth.use_on_oom.push(id);
        }
        Ok(())
    }

    /// No longer lets a pool's free memory help out when memory is short, and gives up one use of it; it stays until it
    /// is emptied.
    pub(crate) fn close_pool(&self, id: PoolId) {
        let mut growth = lock(&self.growth);
        growth.use_on_oom.retain(|lender| *lender != id);
        growth.release_use(id);
    }

    /// How many graphs, pool objects and scopes use a private pool.
    pub(crate) fn pool_use_count(&self, id: PoolId) -> u32 {
        lock(&self.growth).private.get(&id).map_or(0, |pool| pool.use_count)
    }

    /// Notes streams on which graphs that are being dropped may still use a private pool.
    pub(crate) fn note_replays(&self, id: PoolId, replayed_on: &BTreeSet<StreamRef>) {
        if let Some(pool) = lock(&self.growth).private.get_mut(&id) {
            pool.replayed_on.extend(replayed_on);
        }
    }

    /// Gives up one use of a private pool. A pool without uses and memory is gone.
    pub(crate) fn release_pool(&self, id: PoolId) {
        let mut growth = lock(&self.growth);
        growth.release_use(id);
        growth.remove_pool_if_unused(id);
    }
}

impl Growth {
    fn release_use(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.use_count = pool.use_count.saturating_sub(1);
        }
    }
}

impl Growth {
    /// Where the segments of a private pool, or of the default one, come from and go to.
    pub(crate) fn source<'a>(&'a self, owner: Option<PoolId>, driver: &'a dyn SegmentSource) -> &'a dyn SegmentSource {
        let private = owner.and_then(|id| self.private.get(&id));
        let own = private.and_then(|private| self.pools.get(private.pool).source.as_deref());
        if let Some(own) = own { own } else { driver }
    }
}
