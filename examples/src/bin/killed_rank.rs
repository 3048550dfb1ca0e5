//! What ranks say, and when, of a rank that dies: the last one kills itself `before`, `in` or `after` a collective.
//!
//! ```sh
//! torchrun --monitor-interval 60 --nproc-per-node 2 --no-python target/release/killed_rank in --nccl --seconds 5
//! ```
//!
//! A launcher ends all ranks when it sees that one is dead; `--monitor-interval` has torchrun look later than the others find
//! out by themselves. Seconds are those from the moment at which the group stood.

use std::error::Error;
use std::io::Write as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cuda_api::distributed::{BackendKind, InitOptions, ProcessGroup, ReduceOp, Work};
use cuda_api::torch;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_nccl = arguments.iter().any(|argument| argument == "--nccl");
    let when = arguments.iter().find(|argument| ["before", "in", "after"].contains(&argument.as_str()));
    let when = when.ok_or("usage: killed_rank before|in|after [--nccl] [--seconds N]")?;
    let place = arguments.iter().position(|argument| argument == "--seconds");
    let seconds = place.and_then(|place| arguments.get(place + 1)).map_or(Ok(10), |text| text.parse())?;
    let mut options = InitOptions { timeout: Duration::from_secs(seconds), ..InitOptions::default() };
    if is_nccl {
        options.backend = BackendKind::Nccl;
    }
    let group = ProcessGroup::init("env://", &options)?;
    group.barrier()?.wait()?;
    run(&group, when, Instant::now())?;
    // Rank 0 holds the store, and the others may still ask it who is missing.
    Ok(group.destroy()?)
}

/// Sums again and again, while the last rank dies.
fn run(group: &ProcessGroup, when: &str, begin: Instant) -> Result<(), Box<dyn Error>> {
    let (rank, size) = (group.rank(), group.size());
    let device = group.device().map_or_else(|| "cpu".to_owned(), |device| device.to_string());
    let tensor = torch::ones(&[1 << 10], torch::float32, device.as_str())?;
    let say = |text: &str| {
        let text = text.replace('\n', "\n    ");
        writeln!(std::io::stdout(), "rank {rank} of {size} at {:.1} s: {text}", begin.elapsed().as_secs_f64())
    };
    if when != "before" {
        done(&group.all_reduce(&tensor, ReduceOp::Sum)?)?;
        say("the first sum is done")?;
    }
    if rank + 1 == size {
        let _under_way = if when == "in" { Some(group.all_reduce(&tensor, ReduceOp::Sum)?) } else { None };
        say("kills itself")?;
        Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status()?;
    }
    // What the dead rank had called may still end well where it had given its values.
    let mut outcome = Ok(());
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        outcome = group.all_reduce(&tensor, ReduceOp::Sum).and_then(|work| done(&work));
        if outcome.is_err() {
            break;
        }
        say("another sum is done")?;
    }
    match outcome {
        Ok(()) => say("nobody died")?,
        Err(error) => say(&error.to_string())?,
    }
    if let Err(error) = group.barrier() {
        say(&format!("a later barrier is refused: {}", error.to_string().lines().next().unwrap_or_default()))?;
    }
    Ok(())
}

/// Waits on the host. The watch-dog sees to it that this ends.
fn done(work: &Work) -> Result<(), cuda_api::distributed::Error> {
    work.wait_timeout(Duration::from_secs(3600))
}
