//! Products of matrices are tuned: which way to each is the fastest on this machine is measured once, kept and written to a
//! file (`torch.cuda.tunable`). What the files have, which environment variables are read and what differs from torch stands
//! in [`aten_cuda::tunable`].
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! # let folder = std::env::temp_dir().join(format!("tunable-page-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! use cuda_api::{torch, tunable};
//!
//! tunable::set_filename(&format!("{}/results.csv", folder.display()), true);
//! tunable::set_max_tuning_duration(5);
//! # tunable::set_max_tuning_iterations(2);
//! # tunable::set_rotating_buffer_size(0);
//! tunable::enable(true);
//! let a = torch::randn(&[48, 32], torch::float32, "cuda")?;
//! let product = torch::mm(&a, &a.t()?)?;
//! assert!(tunable::get_filename()?.is_empty() || tunable::get_filename()?.ends_with("results0.csv"));
//! assert_eq!(tunable::get_validators(), [("PT_VERSION".to_owned(), "2.11.0".to_owned())]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use aten_cuda::tunable::{
    ResultsFile, TunableResult, enable, get_filename, get_max_tuning_duration, get_max_tuning_iterations, get_results,
    get_rotating_buffer_size, get_solution_validators, get_validators, is_enabled, load_file, mgpu_tune_gemm_in_file,
    parse_results, read_file, record_untuned_enable, record_untuned_is_enabled, set_filename, set_max_tuning_duration,
    set_max_tuning_iterations, set_numerical_check_tolerances, set_rotating_buffer_size, tune_gemm_in_file,
    tuning_enable, tuning_is_enabled, write_file,
};
pub use aten_cuda::{RejectedResults, TuneError};
