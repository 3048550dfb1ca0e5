//! Ranks that torchrun, mpirun, Slurm or Kubernetes started: they meet, sum a tensor, and wait for each other. Ranks of
//! PyTorch may be among them: they meet in the same store.
//!
//! With `--nccl` the tensor is on the device of the rank's number on its host, and NCCL sums it. Ranks of PyTorch take part
//! that run `examples/torch/distributed.py`.
//!
//! With `--torch-keys` rank 0 also sets `from-rust` in the store and waits for `from-torch`, which a rank of PyTorch sets.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use cuda_api::distributed::{BackendKind, InitOptions, ProcessGroup, ReduceOp, Rendezvous};
use cuda_api::torch;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let mut options = InitOptions::default();
    let is_nccl = std::env::args().any(|arg| arg == "--nccl");
    if is_nccl {
        options.backend = BackendKind::Nccl;
    }
    if std::env::args().any(|arg| arg == "--torch-keys") {
        return exchange_keys(&options, &mut out);
    }
    let group = ProcessGroup::init("env://", &options)?;
    let (rank, size) = (group.rank(), group.size());
    // By NCCL that of the rank's number on its host.
    let device = group.device().map_or_else(|| "cpu".to_owned(), |device| device.to_string());
    let tensor = torch::full(&[3], rank as f64 + 1.0, torch::float32, device.as_str())?;
    group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
    let expected = (size * (size + 1) / 2) as f32;
    assert_eq!(tensor.to_vec::<f32>()?, [expected; 3]);
    // Ranks of PyTorch know no monitored barrier of ours.
    if is_nccl {
        group.barrier()?.wait()?;
    } else {
        group.monitored_barrier(Duration::from_secs(60), true)?;
    }
    writeln!(out, "rank {rank} of {size}: the sum is {expected}")?;
    group.destroy()?;
    Ok(())
}

/// Exchanges a value with a rank of PyTorch.
fn exchange_keys(options: &InitOptions, out: &mut impl std::io::Write) -> Result<(), Box<dyn Error>> {
    let met = Rendezvous::meet("env://", &options.rendezvous)?;
    let store = met.group_store(&options.name);
    store.set("from-rust", b"hello")?;
    let said = store.get("from-torch", Duration::from_secs(60))?;
    writeln!(out, "rank {} of {}: PyTorch says {}", met.rank, met.world_size, String::from_utf8_lossy(&said))?;
    store.set("rust-has-read", b"")?;
    store.get("torch-has-read", Duration::from_secs(60))?;
    Ok(())
}
