//! Writes random tensor operations with the results of the host and of the simulated device, one line of JSON each:
//! `random_ops FILE COUNT SEED DEVICE_EVERY DRIVER`. `tests/differential/replay.py` compares them with PyTorch.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    tests::ops::random(&arguments)
}
