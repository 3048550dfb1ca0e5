//! Tensors: the classic example of `torch.cuda`, a product on a side stream.

use cuda_api::{Event, EventOptions, Stream, torch};
use examples::checks::{Failure, equal, holds};

use crate::{replay, say};

/// Rows and columns of the matrix.
const SIZE: i64 = 1000;

/// Bytes of the matrix in whole blocks of 512, which the allocator hands out.
const MATRIX_BYTES: u64 = 4_000_256;

/// Rows that are multiplied: a simulated device is slow.
const ROWS: i64 = 32;

/// Why the driver refuses to run kernels, if it does.
///
/// # Errors
/// A first kernel fails for another reason than that the driver cannot take its code.
pub(crate) fn refusal() -> Result<Option<String>, Failure> {
    let first = torch::ones(&[1], torch::float32, "cuda").and_then(|one| one.neg()?.to_vec::<f32>());
    match first {
        Ok(values) => equal("the first kernel, which negates one", vec![-1.0], values).map(|()| None),
        Err(error) => match error.runtime() {
            Some(
                cause @ (cuda_api::Error::Module(_) | cuda_api::Error::Unavailable(_) | cuda_api::Error::Launch(_)),
            ) => Ok(Some(cause.to_string())),
            _ => Err(error.into()),
        },
    }
}

/// Makes a random matrix, multiplies a part of it on a side stream and compares with the host's product.
pub(crate) fn run() -> Result<(), Failure> {
    let before = cuda_api::memory_allocated(None)?;
    cuda_api::manual_seed(0)?;
    let matrix = torch::randn(&[SIZE, SIZE], torch::float32, "cuda")?;
    let bytes = cuda_api::memory_allocated(None)? - before;
    // A configuration of the user's may round sizes otherwise.
    if replay::configured_by().is_none() {
        equal("bytes allocated for the matrix", MATRIX_BYTES, bytes)?;
    }
    say(format!("  randn({SIZE}, {SIZE}) on {}: {bytes} bytes allocated", matrix.device()));
    // The first product waits for its kernel to be loaded.
    multiply(&matrix)?;
    let (product, milliseconds) = multiply(&matrix)?;
    let expected = rows(&matrix.cpu()?)?.matmul(&matrix.cpu()?)?;
    let off = product.cpu()?.sub(&expected)?.abs()?.max()?.item()?.to_f64();
    holds(format!("the product is the host's: off by {off:e}"), off < 1e-3)?;
    say(format!("  {ROWS} of its rows times itself on a side stream: {milliseconds:.3} ms by the device's clock"));
    say(format!("  the host's product differs by at most {off:.1e}"));
    Ok(())
}

/// The product of the first rows with the whole matrix, and how long it took.
fn multiply(matrix: &torch::Tensor) -> Result<(torch::Tensor, f64), Failure> {
    let current = cuda_api::current_stream(None)?;
    let side = Stream::new(None, 0)?;
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    // The matrix is made on the current stream: the other one begins when it is there.
    side.wait_stream(&current)?;
    let product = {
        let _side = cuda_api::stream(&side)?;
        start.record(None)?;
        let product = torch::matmul(&rows(matrix)?, matrix)?;
        end.record(None)?;
        product
    };
    // Either tensor is used on a stream that it was not made on.
    matrix.record_stream(&side)?;
    current.wait_stream(&side)?;
    product.record_stream(&current)?;
    end.synchronize()?;
    Ok((product, start.elapsed_time(&end)?.into()))
}

fn rows(matrix: &torch::Tensor) -> torch::Result<torch::Tensor> {
    matrix.narrow(0, 0, ROWS)
}
