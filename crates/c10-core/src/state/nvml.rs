//! The NVML of a runtime: loaded and initialised when it is first needed, without starting the runtime.

use std::sync::{Arc, PoisonError};

use cuda_sys::Nvml as Table;

use crate::base::error::Result;
use crate::base::visible::VisibleDevices;
use crate::driver::{Nvml, Source};
use crate::sync::Mutex;

/// A runtime's NVML.
#[derive(Debug, Default)]
pub(crate) struct NvmlSlot(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    given: Option<Arc<Table>>,
    ready: Option<Arc<Nvml>>,
}

impl NvmlSlot {
    /// NVML, initialised; tried anew after a failure.
    pub(crate) fn get(&self, source: &Source) -> Result<Arc<Nvml>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = &slot.ready {
            return Ok(Arc::clone(ready));
        }
        let table = match &slot.given {
            Some(given) => Arc::clone(given),
            None => Arc::new(source.load_nvml()?),
        };
        let ready = Arc::new(Nvml::new(table)?);
        slot.ready = Some(Arc::clone(&ready));
        Ok(ready)
    }

    /// Number of devices that CUDA will show, as far as NVML and `CUDA_VISIBLE_DEVICES` tell; `None` where they do not.
    pub(crate) fn visible_count(&self, source: &Source) -> Option<usize> {
        let visible = VisibleDevices::of_environment();
        let is_empty = visible.count(usize::MAX) == 0;
        match visible {
            _ if is_empty => Some(0),
            VisibleDevices::Instances(_) => None,
            VisibleDevices::Gpus(_) => {
                let uuids = self.get(source).ok()?.uuids().ok()?;
                Some(visible.with_ordinals(&uuids).count(usize::MAX))
            }
            VisibleDevices::Ordinals(_) => {
                let machine = self.get(source).ok()?.device_count().ok()?;
                Some(visible.count(usize::try_from(machine).ok()?))
            }
        }
    }

    /// Takes this NVML from now on.
    pub(crate) fn set(&self, nvml: Table) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *slot, Slot { given: Some(Arc::new(nvml)), ready: None });
        // Dropped without the lock: NVML is shut down then.
        drop(slot);
        drop(before);
    }
}
