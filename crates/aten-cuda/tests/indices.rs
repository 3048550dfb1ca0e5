//! Indices out of range: an error at once on the host, and on a device when values are next read.

use aten_cuda::{DType, Error, Result, Tensor, TensorError, synchronize};

fn out_of_range(outcome: Result<impl Sized>) -> Option<(&'static str, i64, i64, i64)> {
    match outcome {
        Err(Error::Tensor(TensorError::IndexOutOfRange { operation, element, index, size })) => {
            Some((operation, element, index, size))
        }
        _ => None,
    }
}

#[test]
fn the_host_refuses_at_once() -> Result<()> {
    let a = Tensor::zeros(&[3, 4], DType::F32, "cpu")?;
    let index = Tensor::from_slice(&[0_i64, 2, 7], &[3])?;
    assert_eq!(out_of_range(a.index_select(0, &index)), Some(("index_select", 2, 7, 3)));
    assert_eq!(out_of_range(a.embedding(&index)), Some(("embedding", 2, 7, 3)));
    assert_eq!(out_of_range(a.gather(1, &Tensor::from_slice(&[-1_i64], &[1, 1])?)), Some(("gather", 0, -1, 4)));
    Ok(())
}

#[test]
fn a_device_reports_with_the_next_values() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::ones(&[3, 4], DType::F32, "cuda")?;
    let index = Tensor::from_slice(&[0_i64, 2, 7], &[3])?.cuda(None)?;
    let picked = a.index_select(0, &index)?;
    assert_eq!(out_of_range(picked.to_bytes()), Some(("index_select", 2, 7, 3)));
    // The report is gone, the device works on, and what was left out is zero.
    assert_eq!(picked.select(0, 2)?.to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(picked.select(0, 1)?.to_vec::<f32>()?, [1.0; 4]);
    Ok(())
}

#[test]
fn writes_out_of_range_are_left_out() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[5], DType::I32, "cuda")?;
    let one = |index: i64| Tensor::from_slice(&[index], &[1])?.cuda(None);
    let source = Tensor::ones(&[1], DType::I32, "cuda")?;
    a.index_add_(0, &one(5)?, &source, 1)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_add", 0, 5, 5)));
    a.index_copy_(0, &one(-1)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_copy", 0, -1, 5)));
    a.scatter_(0, &one(i64::MAX)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("scatter", 0, i64::MAX, 5)));
    a.scatter_add_(0, &one(i64::MIN)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("scatter_add", 0, i64::MIN, 5)));
    a.index_put_(&[Some(&one(-5)?)], &source, false)?;
    a.index_put_(&[Some(&one(-6)?)], &source, true)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_put", 0, -6, 5)));
    assert_eq!(a.to_vec::<i32>()?[1..], [0; 4]);
    Ok(())
}

#[test]
fn the_first_of_many_is_reported() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[4], DType::F64, "cuda")?;
    let bad = Tensor::full(&[1000], 9, DType::I64, "cuda")?;
    let good = Tensor::zeros(&[1000], DType::I64, "cuda")?;
    a.gather(0, &bad)?;
    // A copy back of other values waits, and tells of the bad ones.
    let (_, element, index, size) = out_of_range(good.to_bytes()).expect("the report lies there");
    assert_eq!((index, size), (9, 4));
    assert!((0..1000).contains(&element));
    assert_eq!(a.gather(0, &good)?.to_vec::<f64>()?, [0.0; 1000]);
    a.gather(0, &bad)?;
    assert_eq!(out_of_range(synchronize(None)).map(|(operation, ..)| operation), Some("gather"));
    synchronize(None)
}
