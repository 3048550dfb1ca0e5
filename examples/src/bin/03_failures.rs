//! What the runtime says when it is misused, and that it can be used on afterwards.
//!
//! Each case does something wrong, compares the message with what it must begin with, and then allocates, fills and reads
//! a little memory. Runs on any driver; ends with exit code 1 at the first case that answers otherwise.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{CUDAGraph, DeviceBuffer, Event, EventOptions, GraphOptions, Stream, caching_allocator_alloc, torch};
use examples::checks::{Failure, holds};

/// Something wrong to do, by name, and how its message begins.
struct Case {
    name: &'static str,
    message: &'static str,
    run: fn() -> torch::Result<()>,
}

const CASES: &[Case] = &[
    Case {
        name: "a driver that is not there",
        message: "Found no NVIDIA driver on your system. Check that there is an NVIDIA GPU and that its driver is \
                  installed.\ncould not load libcuda (NVIDIA driver); tried:\n  /nonexistent/libcuda.so.1: ",
        run: || Ok(cuda_api::Runtime::on_driver_file("/nonexistent/libcuda.so.1").init()?),
    },
    Case {
        name: "a device that is not there",
        message: "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?",
        run: || Ok(cuda_api::set_device(99)?),
    },
    Case {
        name: "the name of a device that is not there",
        message: "Invalid device id",
        run: || Ok(cuda_api::get_device_name(99).map(drop)?),
    },
    Case {
        name: "a text that names no device",
        message: "Invalid device string: 'cuda0'",
        run: || Ok(cuda_api::synchronize("cuda0")?),
    },
    Case {
        name: "more memory than the device has",
        message: "CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total capacity of ",
        run: || Ok(caching_allocator_alloc(4096 << 30, None, None).map(drop)?),
    },
    Case {
        name: "a pointer that was never handed out",
        message: "invalid device pointer: 0x3039",
        run: || Ok(cuda_api::caching_allocator_delete(0x3039)?),
    },
    Case {
        name: "the time between events that were not recorded",
        message: "Both events must be recorded before calculating elapsed time.",
        run: || Ok(Event::new(EventOptions::TIMING).elapsed_time(&Event::new(EventOptions::TIMING)).map(drop)?),
    },
    Case {
        name: "the time between events without timing",
        message: "Both events must be created with argument 'enable_timing=True'.",
        run: || Ok(Event::default().elapsed_time(&Event::default()).map(drop)?),
    },
    Case {
        name: "capture on the default stream",
        message: "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them \
                  on the default stream.)",
        run: || {
            let stream = cuda_api::default_stream(None)?;
            let options = GraphOptions { stream: Some(&stream), ..GraphOptions::default() };
            cuda_api::with_graph(&mut CUDAGraph::new(), options, || Ok(()))
        },
    },
    Case {
        name: "a forbidden call during capture",
        message: "CUDA error: operation not permitted when stream is capturing",
        run: || {
            let body = || Ok(cuda_api::synchronize(None)?);
            cuda_api::with_graph(&mut CUDAGraph::new(), GraphOptions::default(), body)
        },
    },
    Case {
        name: "replay before capture",
        message: "Called CUDAGraph::replay without a preceding successful capture.",
        run: || Ok(CUDAGraph::new().replay()?),
    },
];

fn main() -> Result<(), Failure> {
    println!("on {}", cuda_api::get_device_name(None)?);
    for case in CASES {
        let error = (case.run)().err().ok_or_else(|| format!("{}: nothing was refused", case.name))?.to_string();
        println!("\n{}:\n  {}", case.name, error.trim_end().replace('\n', "\n  "));
        if !error.starts_with(case.message) {
            return Err(format!("{}: expected a message that begins with {:?}", case.name, case.message).into());
        }
        is_usable().map_err(|error| format!("after {}: {error}", case.name))?;
    }
    println!("\n{} failures, each said why, and the runtime was usable after each", CASES.len());
    Ok(())
}

/// Allocates, fills and reads a little memory on a stream.
fn is_usable() -> Result<(), Failure> {
    let stream = Stream::new(None, 0)?;
    let buffer = cuda_api::with_stream(&stream, || Ok(DeviceBuffer::new(4096, None)?))?;
    buffer.fill(0..4096, 5, &stream)?;
    stream.synchronize()?;
    holds("memory holds what it was filled with", buffer.to_vec()?.iter().all(|byte| *byte == 5))
}
