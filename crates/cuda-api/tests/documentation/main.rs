//! Examples of every name that `docs/coverage.md` marks as done, used as in PyTorch's documentation, on a simulated
//! machine with two devices.
//!
//! Names are written as on that page; names of sections by module are qualified with the module
//! (`torch.cuda.nccl.broadcast`). `cargo xtask coverage --check` fails for a row without an example here.
#![expect(unsafe_code, reason = "streams, memory and kernels that others made")]

mod amp;
mod backends;
mod devices;
mod graphs;
mod libraries;
mod memory;
mod settings;
mod streams;
mod types;

use cuda_api::torch::{self, Result, Tensor};
use testkit::{Config, Simulation};

/// Names that an example shows, separated by blanks, and the example.
type Example = (&'static str, fn() -> Result<()>);

/// Runs each example on a separate machine.
fn run(examples: &[Example]) {
    for (names, example) in examples {
        let _simulated = Simulation::new(Config::default().devices(2).seed(4)).with_nvml().here();
        let answer = std::panic::catch_unwind(example);
        assert!(matches!(answer, Ok(Ok(()))), "{names}: {answer:?}");
    }
}

fn ones(sizes: &[i64]) -> Result<Tensor> {
    torch::ones(sizes, torch::float32, "cuda")
}

/// Temporary file that is removed on drop.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("documentation-{}-{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
