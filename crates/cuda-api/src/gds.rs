//! Files that storages of a device are read from and written to (`torch.cuda.gds`), and which way their bytes go.
//!
//! Where cuFile moves bytes between disk and device without the host's memory, it does. Everywhere else the same calls go
//! through pinned buffers. [`GdsFile::route`] says which it is, and why; cuFile's compatibility mode is not used, and would
//! not be called direct.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! # let path = std::env::temp_dir().join(format!("gds-page-{}", std::process::id()));
//! use cuda_api::gds::{self, GdsFile, OpenFlags};
//! use cuda_api::torch;
//!
//! let a = torch::ones(&[2, 3], torch::float32, "cuda")?;
//! gds::gds_register_buffer(a.storage())?;
//! let file = GdsFile::new(&path, OpenFlags::CREAT | OpenFlags::RDWR)?;
//! file.save_storage(a.storage(), 0)?;
//!
//! let b = torch::zeros(&[2, 3], torch::float32, "cuda")?;
//! file.load_storage(b.storage(), 0)?;
//! assert_eq!(b.to_vec::<f32>()?, [1.0; 6]);
//! println!("{}", file.route());
//! gds::gds_deregister_buffer(a.storage())?;
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use aten_cuda::Storage;
pub use cuda_storage::gds::{GdsFile, OpenFlags, gds_deregister_buffer, gds_register_buffer, set_library};
#[cfg(feature = "safetensors")]
pub use cuda_storage::safetensors;
pub use cuda_storage::{CufileCause, Error, Options, PageCache, Requests, Result, Route};
