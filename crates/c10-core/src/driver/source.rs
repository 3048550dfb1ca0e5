//! Where the driver of a runtime comes from, and NVML with it.
//!
//! **Invariant:** a runtime on a driver that the program chose takes an NVML that the program chose, or the one that
//! lies beside that driver. So it shows the devices of the machine that its driver is on, or none.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cuda_sys::{Driver as Table, Nvml as NvmlTable};

use crate::base::error::{NvmlMissing, Result};

/// Where the driver comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The runtime was made with its function table.
    Given,
    /// It is searched for where the system keeps it.
    Search,
    /// This file.
    File(PathBuf),
}

impl Source {
    /// Loads the driver.
    pub(crate) fn load(&self) -> Result<Table> {
        let _span = tracing::debug_span!("load_library", name = "libcuda").entered();
        Ok(match self {
            Self::File(path) => Table::load_from(path)?,
            Self::Search | Self::Given => Table::load()?,
        })
    }

    /// Loads the NVML that belongs to the driver.
    pub(crate) fn load_nvml(&self) -> Result<NvmlTable> {
        let _span = tracing::debug_span!("load_library", name = "libnvidia-ml").entered();
        let named = |name: &str| std::env::var_os(name).filter(|path: &OsString| !path.is_empty());
        let beside = |driver: &Path| match driver.parent() {
            Some(folder) if named("CUDA_SYS_LIBNVML").is_none() => {
                NvmlTable::load_from(folder.join("libnvidia-ml.so.1"))
            }
            _ => NvmlTable::load(),
        };
        let loaded = match self {
            Self::Given => {
                return Err(NvmlMissing::NotGiven.into());
            }
            Self::File(driver) => beside(driver),
            Self::Search => named("CUDA_SYS_LIBCUDA").map_or_else(NvmlTable::load, |driver| beside(Path::new(&driver))),
        };
        loaded.map_err(|error| NvmlMissing::Load(error).into())
    }
}
