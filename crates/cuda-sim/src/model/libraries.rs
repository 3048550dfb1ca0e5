//! Libraries: programs that belong to no context, and their kernels. Where a library is first used in a context, it
//! becomes a module there.
//!
//! Invariants: a kernel's library is loaded. The modules of a library are there; they go with the library or with their
//! context. A module's functions stand in the order of its library's kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use ptx_sim::Program;

use super::State;
use super::kernel::Kernel;
use super::modules::{Described, dynamic_shared_of};
use crate::codes::{Answer, INVALID_HANDLE};

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) program: Arc<Program>,
    /// Handles of its kernels.
    pub(crate) kernels: Vec<u64>,
    /// Its modules, by context.
    pub(crate) modules: BTreeMap<u64, u64>,
}

/// A kernel of a library.
#[derive(Debug)]
pub(crate) struct LibraryKernel {
    pub(crate) library: u64,
    /// Its place among the kernels of the library.
    index: usize,
    pub(crate) kernel: Arc<Kernel>,
    /// The most bytes of shared memory that a launch may ask for, by device where that was set.
    dynamic_shared_max: BTreeMap<u32, u32>,
}

impl State {
    /// Adds a library.
    pub(crate) fn add_library(&mut self, program: Arc<Program>) -> u64 {
        let library = self.new_handle();
        let mut kernels = Vec::new();
        for (index, kernel) in Kernel::all_of(&program).into_iter().enumerate() {
            let handle = self.new_handle();
            let dynamic_shared_max = BTreeMap::new();
            self.library_kernels.insert(handle, LibraryKernel { library, index, kernel, dynamic_shared_max });
            kernels.push(handle);
        }
        self.libraries.insert(library, Library { program, kernels, modules: BTreeMap::new() });
        library
    }

    /// Takes a library away, with its modules.
    pub(crate) fn remove_library(&mut self, library: u64) -> Answer {
        let removed = self.libraries.remove(&library).ok_or(INVALID_HANDLE)?;
        for kernel in removed.kernels {
            self.library_kernels.remove(&kernel);
        }
        removed.modules.into_values().try_for_each(|module| self.remove_module(module))
    }

    /// The library of a handle.
    pub(crate) fn library(&self, handle: u64) -> Answer<&Library> {
        self.libraries.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// The kernel of a handle.
    pub(crate) fn library_kernel(&self, handle: u64) -> Answer<&LibraryKernel> {
        self.library_kernels.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// Whether a module is that of a library, with which it goes.
    pub(crate) fn is_of_a_library(&self, module: u64) -> bool {
        self.libraries.values().any(|library| library.modules.values().any(|&own| own == module))
    }

    /// Forgets the modules of a context that has ended.
    pub(crate) fn forget_library_modules(&mut self, context: u64) {
        for library in self.libraries.values_mut() {
            library.modules.remove(&context);
        }
    }

    /// The module of a library in a context; it is loaded if it is not there yet.
    pub(crate) fn module_of_library(&mut self, library: u64, context: u64) -> Answer<u64> {
        let found = self.library(library)?;
        if let Some(&module) = found.modules.get(&context) {
            return Ok(module);
        }
        let module = self.add_module(context, Arc::clone(&found.program))?;
        let device = self.active_context(context)?.device;
        for (index, kernel) in self.library(library)?.kernels.clone().into_iter().enumerate() {
            let most = self.library_kernel(kernel)?.dynamic_shared_max(device);
            let function = self.modules.get(&module).and_then(|module| module.functions.get(index).copied());
            if let Some(function) = function.and_then(|function| self.functions.get_mut(&function)) {
                function.dynamic_shared_max = most;
            }
        }
        if let Some(library) = self.libraries.get_mut(&library) {
            library.modules.insert(context, module);
        }
        Ok(module)
    }

    /// The function of a kernel in a context, if its library was used there.
    pub(crate) fn present_function(&self, kernel: u64, context: u64) -> Answer<Option<u64>> {
        let found = self.library_kernel(kernel)?;
        let module = self.library(found.library)?.modules.get(&context).and_then(|module| self.modules.get(module));
        Ok(module.and_then(|module| module.functions.get(found.index).copied()))
    }

    /// The function that a handle names in a context: a function's own, or that of a kernel of a library.
    pub(crate) fn function_in(&mut self, handle: u64, context: u64) -> Answer<u64> {
        if self.functions.contains_key(&handle) {
            return Ok(handle);
        }
        let library = self.library_kernel(handle)?.library;
        self.module_of_library(library, context)?;
        self.present_function(handle, context)?.ok_or(INVALID_HANDLE)
    }

    /// What can be asked of a function or, on a device, of a kernel.
    pub(crate) fn described(&self, handle: u64, device: u32) -> Answer<Described> {
        if let Some(function) = self.functions.get(&handle) {
            let dynamic_shared_max = function.dynamic_shared_max;
            return Ok(Described { kernel: Arc::clone(&function.kernel), dynamic_shared_max });
        }
        let found = self.library_kernel(handle)?;
        Ok(Described { kernel: Arc::clone(&found.kernel), dynamic_shared_max: found.dynamic_shared_max(device) })
    }

    /// Sets how many bytes of shared memory a launch of a function may ask for, or of a kernel on a device.
    pub(crate) fn set_dynamic_shared_max(&mut self, handle: u64, device: u32, bytes: u32) -> Answer {
        if let Some(function) = self.functions.get_mut(&handle) {
            function.dynamic_shared_max = bytes;
            return Ok(());
        }
        let kernel = self.library_kernels.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        kernel.dynamic_shared_max.insert(device, bytes);
        let contexts: Vec<u64> = self.library(self.library_kernel(handle)?.library)?.modules.keys().copied().collect();
        for context in contexts {
            let is_there = self.active_context(context).is_ok_and(|context| context.device == device);
            if let (true, Some(function)) = (is_there, self.present_function(handle, context)?) {
                self.set_dynamic_shared_max(function, device, bytes)?;
            }
        }
        Ok(())
    }
}

impl LibraryKernel {
    fn dynamic_shared_max(&self, device: u32) -> u32 {
        self.dynamic_shared_max.get(&device).copied().unwrap_or_else(|| dynamic_shared_of(&self.kernel))
    }
}
