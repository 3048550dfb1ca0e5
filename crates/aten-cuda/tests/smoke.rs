//! The shortest ways through tensors: made, computed with and read, on the host and on a simulated device.

use aten_cuda::{DType, Result, Tensor};

#[test]
fn a_sum_on_the_device() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?.cuda(None)?;
    let b = Tensor::full(&[2], 10, DType::F32, "cuda")?;
    assert_eq!(a.add(&b)?.to_vec::<f32>()?, [11.0, 12.0, 13.0, 14.0]);
    assert_eq!(a.t()?.add(&b)?.to_vec::<f32>()?, [11.0, 13.0, 12.0, 14.0]);
    assert_eq!(a.add(&b)?.gt(11.5)?.to_bools()?, [false, true, true, true]);
    Ok(())
}

#[test]
fn long_tensors_go_through_vectors_and_a_tail() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for count in [1_i64, 127, 1024, 1025, 5000] {
        let host: Vec<f32> = (0..count).map(|at| at as f32).collect();
        let a = Tensor::from_slice(&host, &[count])?.cuda(None)?;
        let expected: Vec<f32> = host.iter().map(|x| (x * 2.0).sqrt()).collect();
        assert_eq!(a.mul(2)?.sqrt()?.to_vec::<f32>()?, expected, "{count}");
        let half = a.to_dtype(DType::BF16)?;
        assert_eq!(
            half.relu()?.to_dtype(DType::I64)?.to_bytes()?,
            Tensor::from_slice(&host, &[count])?.to_dtype(DType::BF16)?.to_dtype(DType::I64)?.to_bytes()?
        );
    }
    Ok(())
}
