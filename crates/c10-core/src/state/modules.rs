//! Which modules are loaded, and which of them are not needed any more.
//!
//! **Invariant:** a loaded module is listed here until it is unloaded. A module that nobody holds is unloaded right
//! after the program has waited for its device: the work that used it is done then, and unloading does not have to
//! wait.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::PoisonError;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::driver::{Api, FunctionHandle, ModuleHandle};
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Modules {
    state: Mutex<BTreeMap<ModuleHandle, Entry>>,
    /// Kernels of this crate, by device and name. Their modules stay loaded as long as the runtime.
    own: Mutex<BTreeMap<(DeviceIndex, &'static CStr), FunctionHandle>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    device: DeviceIndex,
    retired: bool,
}

impl Modules {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ModuleHandle, Entry>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a module that was loaded.
    pub(crate) fn add(&self, module: ModuleHandle, device: DeviceIndex) {
        self.lock().insert(module, Entry { device, retired: false });
    }

    /// Notes that nobody holds a module any more. Makes no driver call.
    pub(crate) fn retire(&self, module: ModuleHandle) {
        if let Some(entry) = self.lock().get_mut(&module) {
            entry.retired = true;
        }
    }

    /// Modules of a device that nobody holds. Ask before the program waits for the device.
    pub(crate) fn retired(&self, device: DeviceIndex) -> Vec<ModuleHandle> {
        let retired = |entry: &Entry| entry.retired && entry.device == device;
        self.lock().iter().filter(|(_, entry)| retired(entry)).map(|(module, _)| *module).collect()
    }

    /// Unloads modules that nobody can use any more. A module that cannot be unloaded is tried the next time.
    pub(crate) fn unload(&self, api: &Api, modules: &[ModuleHandle]) {
        for module in modules {
            // Removed first: only one of two threads may unload it.
            let Some(entry) = self.lock().remove(module) else { continue };
            if api.module_unload(entry.device, *module).is_err() {
                self.lock().insert(*module, entry);
            }
        }
    }

    /// Unloads everything, at the end of the runtime, when the devices are idle.
    pub(crate) fn dismantle(&self, api: &Api) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let all: Vec<ModuleHandle> = self.lock().keys().copied().collect();
        self.unload(api, &all);
    }

    /// A kernel of this crate on a device; `load` loads it when it is first needed.
    pub(crate) fn own(
        &self,
        device: DeviceIndex,
        name: &'static CStr,
        load: impl FnOnce() -> Result<FunctionHandle>,
    ) -> Result<FunctionHandle> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = own.get(&(device, name)) {
            return Ok(*function);
        }
        let function = load()?;
        own.insert((device, name), function);
        Ok(function)
    }
}
