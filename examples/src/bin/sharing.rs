//! Two processes use one tensor, and each may be killed.
//!
//! The program starts itself a second time and shares a matrix and a view of it. The second process sees one storage, doubles
//! the elements of the view, and sends the matrix back, which is the first one's own. Then the second process is killed, and
//! its count is gone with it. Runs on any driver; ends with exit code 1 where something is not as it should be.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::multiprocessing::SharedTensor;
use cuda_api::torch::{self, Tensor};
use cuda_api::{ipc_collect, memory_allocated};
use examples::checks::{Failure, equal, holds};
use examples::second::{Second, is_second, told};

fn main() -> Result<(), Failure> {
    if is_second() { second() } else { first() }
}

fn first() -> Result<(), Failure> {
    println!("on {}", cuda_api::get_device_name(None)?);
    let matrix = torch::arange(0, 12, 1, Some(torch::float32), "cuda")?.view(&[3, 4])?;
    let column = matrix.select(1, 2)?;
    let mut other = Second::start()?;
    for tensor in [&matrix, &column] {
        other.tell(&tensor.share()?.to_bytes())?;
        println!("{}", other.hear()?);
    }
    println!("first: the column is now {:?}", doubled(&mut other, &matrix, &column)?);

    drop((matrix, column));
    ipc_collect()?;
    holds("the memory is kept for the second process", memory_allocated(None)? > 0)?;
    println!("first: dropped here, {} bytes are kept for the second process", memory_allocated(None)?);
    other.kill()?;
    ipc_collect()?;
    equal("bytes that are kept", 0, memory_allocated(None)?)?;
    println!("first: the second process was killed, {} bytes are kept", memory_allocated(None)?);
    Ok(())
}

/// Has the second process double the column, and takes the matrix back from it.
fn doubled(other: &mut Second, matrix: &Tensor, column: &Tensor) -> Result<Vec<f32>, Failure> {
    other.tell(&[])?;
    let digits = other.hear()?;
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>()?;
    let back = Tensor::from_shared(&SharedTensor::from_bytes(&bytes)?)?;
    holds("the matrix that comes back is this one", back.data_ptr() == matrix.data_ptr())?;
    equal("the column", vec![4.0, 12.0, 20.0], column.to_vec::<f32>()?)?;
    Ok(column.to_vec::<f32>()?)
}

fn second() -> Result<(), Failure> {
    let matrix = Tensor::from_shared(&SharedTensor::from_bytes(&told()?)?)?;
    println!("second: a tensor of {:?} with the strides {:?}", matrix.sizes(), matrix.strides());
    let column = Tensor::from_shared(&SharedTensor::from_bytes(&told()?)?)?;
    holds("both are views of one storage", column.storage().is_same(matrix.storage()))?;
    println!("second: a tensor of {:?} with the strides {:?}, of the same memory", column.sizes(), column.strides());
    told()?;
    column.mul_(2)?;
    let bytes = matrix.share()?.to_bytes();
    println!("{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    told()?;
    Ok(())
}
