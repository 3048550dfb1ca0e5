//! Groups of processes: what `torch.distributed` is above NCCL. Rendezvous under `torchrun`, `mpirun` and Slurm, stores that
//! ranks of PyTorch share, collectives with works to wait for, and a watch-dog that names who is missing.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::distributed::{InitOptions, ProcessGroup, ReduceOp};
//! use cuda_api::torch;
//!
//! # let path = std::env::temp_dir().join(format!("distributed-page-{}", std::process::id()));
//! # let url = format!("file://{}?rank=0&world_size=1", path.display());
//! // Under torchrun the address is "env://".
//! let group = ProcessGroup::init(&url, &InitOptions::default())?;
//! let tensor = torch::ones(&[2], torch::float32, "cpu")?;
//! group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
//! assert_eq!(tensor.to_vec::<f32>()?, [group.size() as f32; 2]);
//! group.destroy()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use cuda_dist::{
    BackendKind, Call, Error, ErrorHandling, FileStore, GroupOptions, HashStore, InitOptions, Launch, Life, Limits,
    Operation, P2POp, PrefixStore, ProcessGroup, RankState, ReduceOp, Rendezvous, RendezvousOptions, Report, Result,
    Settings, Store, TcpServerOptions, TcpStore, TcpStoreOptions, TcpStoreServer, Work,
};
