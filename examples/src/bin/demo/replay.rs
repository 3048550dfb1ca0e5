//! Replays the allocations of a recorded training run.
//!
//! Each allocation and each free of the run goes through the caching allocator, in order. What the allocator counts is
//! compared with what the recorded sizes add up to.

use std::path::Path;
use std::time::Instant;

use examples::checks::{Failure, bytes, equal, holds};
use examples::progress::Progress;
use examples::trace::{Figures, Step, Trace};

use crate::say;

/// What PyTorch 2.11's allocator counted when it replayed a trace on an H200.
struct Recorded {
    /// The trace, by its number of allocations and the sum of their rounded sizes.
    trace: (usize, u64),
    allocated_bytes_peak: u64,
    reserved_bytes_peak: u64,
}

/// The training run that the demo comes with.
const GPT2_FIXED: Recorded = Recorded {
    trace: (13_575, 669_859_550_720),
    allocated_bytes_peak: 20_155_284_480,
    reserved_bytes_peak: 24_618_467_328,
};

/// Replays the trace in a file.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let trace = fitting(Trace::read(path)?)?;
    let figures = trace.figures();
    cuda_api::empty_cache()?;
    cuda_api::reset_peak_memory_stats(None)?;
    equal("bytes allocated before the first step", 0, cuda_api::memory_allocated(None)?)?;
    let begin = Instant::now();
    let replayed = replay(&trace)?;
    let seconds = begin.elapsed().as_secs_f64();
    report(&trace, &figures, seconds)?;
    for address in replayed {
        cuda_api::caching_allocator_delete(address)?;
    }
    equal("bytes allocated after the last free", 0, cuda_api::memory_allocated(None)?)
}

/// The trace, its sizes divided where the device is smaller than the one it was recorded on.
fn fitting(trace: Trace) -> Result<Trace, Failure> {
    let (free, _) = cuda_api::mem_get_info(None)?;
    // An allocator that fits blocks into segments needs more than what is live: a third more is plenty here.
    let needed = trace.figures().live_bytes_peak / 3 * 4;
    if needed <= free {
        return Ok(trace);
    }
    let divisor = needed.div_ceil(free.max(1)).next_power_of_two();
    say(format!("  {} free of {} wanted: all sizes are divided by {divisor}", bytes(free), bytes(needed)));
    Ok(trace.divided_by(divisor))
}

/// Runs all steps and returns the addresses that are live after the last.
fn replay(trace: &Trace) -> Result<Vec<cuda_api::DevicePtr>, Failure> {
    let mut live = vec![None; trace.allocations];
    let mut progress = Progress::new("replaying", trace.steps.len());
    for (index, step) in trace.steps.iter().enumerate() {
        match *step {
            Step::Alloc { id, size_bytes } => {
                live[id] = Some(cuda_api::caching_allocator_alloc(size_bytes, None, None)?)
            }
            Step::Free { id } => {
                let address = live[id].take().ok_or("the trace frees what it did not allocate")?;
                cuda_api::caching_allocator_delete(address)?;
            }
        }
        if index % 64 == 0 || index + 1 == trace.steps.len() {
            let allocated = cuda_api::memory_allocated(None)?;
            progress.at(index + 1, || format!("{:>10} live", bytes(allocated)));
        }
    }
    progress.finish();
    Ok(live.into_iter().flatten().collect())
}

fn report(trace: &Trace, figures: &Figures, seconds: f64) -> Result<(), Failure> {
    let (live, peak) = (cuda_api::memory_allocated(None)?, cuda_api::max_memory_allocated(None)?);
    let reserved = cuda_api::max_memory_reserved(None)?;
    match configured_by() {
        Some(variable) => say(format!("  figures are not compared: {variable} changes what the allocator decides")),
        None => compare(trace, figures, Counted { live, peak, reserved })?,
    }
    let share = peak * 1000 / reserved.max(1);
    let reuse = figures.allocated_bytes_total / reserved.max(1);
    say(format!(
        "  {} allocations, {} in total, in {seconds:.3} s",
        trace.allocations,
        bytes(figures.allocated_bytes_total)
    ));
    say(format!(
        "  peak live {}, peak reserved {}: {}.{} % in use",
        bytes(peak),
        bytes(reserved),
        share / 10,
        share % 10
    ));
    say(format!("  each reserved byte was handed out {reuse} times"));
    Ok(())
}

/// What the allocator counted, in bytes.
struct Counted {
    live: u64,
    peak: u64,
    reserved: u64,
}

/// The variable of the environment that configures the allocator, if one does.
pub(crate) fn configured_by() -> Option<&'static str> {
    const VARIABLES: [&str; 4] =
        ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"];
    VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Compares what the allocator counted in its default configuration with the trace and with PyTorch.
fn compare(trace: &Trace, figures: &Figures, counted: Counted) -> Result<(), Failure> {
    let Counted { live, peak, reserved } = counted;
    holds(format!("{live} bytes are live after the last step, or more in whole blocks"), live >= figures.live_bytes)?;
    let expected = figures.live_bytes_peak..=figures.live_bytes_peak_most;
    holds(format!("a peak of {peak} live bytes lies in {expected:?}"), expected.contains(&peak))?;
    holds("reserved covers what was live", reserved >= peak)?;
    holds("memory was reused", figures.allocated_bytes_total > reserved)?;
    if (trace.allocations, figures.allocated_bytes_total) == GPT2_FIXED.trace {
        equal("peak of live bytes, against PyTorch's", GPT2_FIXED.allocated_bytes_peak, peak)?;
        equal("peak of reserved bytes, against PyTorch's", GPT2_FIXED.reserved_bytes_peak, reserved)?;
        say("  peaks equal to the byte those of PyTorch's allocator on the same run");
    }
    Ok(())
}
