//! Shared objects that a program names, with functions of its own choice: an allocator, for example.
//!
//! **Invariant:** a shared object whose functions were asked for is never closed: whoever has an address may call it at any
//! time.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::NonNull;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::loader::text_of;

/// An open shared object of the program's choice.
#[derive(Debug)]
pub struct PluginLibrary {
    /// Never closed.
    library: std::mem::ManuallyDrop<Library>,
}

impl PluginLibrary {
    /// Opens a file, or what the system's loader finds by a name without a slash, at the symbols' first need at the latest.
    ///
    /// # Errors
    /// What the system's loader says.
    ///
    /// # Safety
    /// The initialisers of the shared object are run.
    pub unsafe fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: the caller wants the initialisers of this file to be run.
        let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = opened.map_err(|error| text_of(&error))?;
        Ok(Self { library: std::mem::ManuallyDrop::new(library) })
    }

    /// Address of an exported symbol.
    ///
    /// # Errors
    /// What the system's loader says where there is none, or where it lies at address 0.
    pub fn symbol(&self, name: &str) -> Result<NonNull<c_void>, String> {
        let name = CString::new(name).map_err(|_| "a name of a function has no zero byte".to_owned())?;
        // SAFETY: only the address is taken; giving it a type is the business of whoever knows the symbol.
        let symbol = unsafe { self.library.get::<*mut c_void>(name.as_bytes_with_nul()) };
        let address = symbol.map_err(|error| text_of(&error))?.into_raw();
        NonNull::new(address).ok_or_else(|| "it lies at address 0".to_owned())
    }
}
