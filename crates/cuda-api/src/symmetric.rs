//! Memory at the same offset on all devices of a process, and sums, barriers and copies by it
//! (`torch.distributed._symmetric_memory`, in one process). What is done, in which order and how it ends where a device does
//! not come stands in [`aten_cuda::symmetric`].
//!
//! ```
//! # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
//! use cuda_api::{symmetric::Symmetric, torch};
//!
//! let symmetric = Symmetric::new(0, &[0, 1])?;
//! let of = |device: &str| torch::full(&[4], 2, torch::float32, device);
//! let tensors = [of("cuda:0")?, of("cuda:1")?];
//! symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
//! assert_eq!(tensors[1].to_vec::<f32>()?, [4.0; 4]);
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::symmetric::Symmetric;
