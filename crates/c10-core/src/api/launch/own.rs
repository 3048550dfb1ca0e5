//! Kernels of this crate, each loaded onto a device when it is first needed.

use std::ffi::CStr;

use crate::base::device::DeviceIndex;
use crate::base::error::{ModuleError, Result};
use crate::driver::FunctionHandle;
use crate::runtime::Started;

/// The kernel `name` of a text. Its module stays as long as the runtime.
pub(crate) fn own_kernel(
    ready: &Started,
    device: DeviceIndex,
    text: &CStr,
    name: &'static CStr,
) -> Result<FunctionHandle> {
    ready.modules.own(device, name, || load(ready, device, text, name))
}

fn load(ready: &Started, device: DeviceIndex, text: &CStr, name: &CStr) -> Result<FunctionHandle> {
    let _relaxed = ready.relaxed()?;
    let module = ready.api.module_from_ptx(device, text)?;
    ready.modules.add(module, device);
    match ready.api.module_function(device, module, name) {
        Ok(Some(function)) => Ok(function),
        found => {
            ready.modules.retire(module);
            let none = ModuleError::NoKernel { name: name.to_string_lossy().into_owned() };
            found.and(Err(none.into()))
        }
    }
}
