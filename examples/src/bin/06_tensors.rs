//! The classic example: a random matrix on the device and a product on a side stream, ordered by hand.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{Stream, torch};

fn main() -> torch::Result<()> {
    cuda_api::manual_seed(0)?;
    let matrix = torch::randn(&[1000, 1000], torch::float32, "cuda")?;
    println!("{} bytes allocated", cuda_api::memory_allocated(None)?);

    let (current, side) = (cuda_api::current_stream(None)?, Stream::new(None, 0)?);
    side.wait_stream(&current)?;
    let product = {
        let _side = cuda_api::stream(&side)?;
        torch::matmul(&matrix.narrow(0, 0, 4)?, &matrix)?
    };
    matrix.record_stream(&side)?;
    current.wait_stream(&side)?;
    product.record_stream(&current)?;

    let shown = product.narrow(1, 0, 4)?;
    println!("{shown}");
    Ok(())
}
