//! A step of kernels and copies, captured once and replayed a thousand times, beside the same steps queued one by one.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Instant;

use cuda_api::{CUDAGraph, DeviceBuffer, GraphOptions, Stream, current_stream};
use examples::checks::Failure;
use examples::kernels::Axpy;

const STEPS: u16 = 1000;
const ELEMENTS: usize = 64;
const BYTES: usize = ELEMENTS * 4;

/// Adds 1 to every element of `sum`, by way of a buffer that only lives in the step.
fn step(kernel: &Axpy, sum: &DeviceBuffer, ones: &DeviceBuffer, stream: &Stream) -> Result<(), Failure> {
    let half = DeviceBuffer::new(BYTES, None)?;
    half.copy_from_buffer(0, ones, 0..BYTES, stream)?;
    kernel.launch(sum, &half, 0.5, stream)?;
    kernel.launch(sum, &half, 0.5, stream)
}

fn check(sum: &DeviceBuffer, wanted: u16) -> Result<(), Failure> {
    let wanted = f32::from(wanted).to_le_bytes();
    let right = sum.to_vec()?.chunks_exact(4).all(|found| found == wanted);
    if right { Ok(()) } else { Err("the sum is wrong".into()) }
}

/// Microseconds of the host for each step, and of the whole until the device is done.
fn timed(mut each: impl FnMut() -> Result<(), Failure>) -> Result<(f64, f64), Failure> {
    let start = Instant::now();
    (0..STEPS).try_for_each(|_| each())?;
    let queued = start.elapsed();
    cuda_api::synchronize(None)?;
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6 / f64::from(STEPS);
    Ok((micros(queued), micros(start.elapsed())))
}

fn main() -> Result<(), Failure> {
    let stream = Stream::new(None, 0)?;
    let _current = cuda_api::stream(&stream)?;
    let (sum, ones) = (DeviceBuffer::new(BYTES, None)?, DeviceBuffer::new(BYTES, None)?);
    sum.copy_from_slice(0, &[0; BYTES])?;
    ones.copy_from_slice(0, &1.0_f32.to_le_bytes().repeat(ELEMENTS))?;
    let kernel = Axpy::new(stream.device_index())?;

    let eager = timed(|| step(&kernel, &sum, &ones, &stream))?;
    check(&sum, STEPS)?;

    let mut graph = CUDAGraph::new();
    let capture = cuda_api::graph(&mut graph, GraphOptions::default())?;
    step(&kernel, &sum, &ones, &current_stream(None)?)?;
    capture.end()?;
    let replayed = timed(|| Ok(graph.replay()?))?;
    check(&sum, 2 * STEPS)?;

    println!("{STEPS} steps of {} nodes; host, and until all was done, for each:", graph.node_count());
    println!("queued one by one {:8.2} us {:8.2} us", eager.0, eager.1);
    println!("replayed          {:8.2} us {:8.2} us", replayed.0, replayed.1);
    Ok(())
}
