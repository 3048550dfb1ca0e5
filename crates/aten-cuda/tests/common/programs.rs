//! Small programs that are compiled: those whose texts are tested, and that the benches measure.

use aten_cuda::{DType, Result, Tensor};

pub(crate) fn chain(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].mul(1.5)?.add(&x[1])?.gelu()?.mul(&x[1].sigmoid()?)?.sub(&x[0])?])
}

pub(crate) fn norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let columns = x[1].sizes()[0];
    Ok(vec![x[0].layer_norm(&[columns], Some(&x[1]), Some(&x[2]), 1e-5)?.gelu()?.add(&x[0])?])
}

pub(crate) fn softmax(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let scaled = x[0].to_dtype(DType::F32)?.mul(0.125)?;
    Ok(vec![scaled.add(&x[1].to_dtype(DType::F32)?)?.softmax(-1, None)?])
}

pub(crate) fn rms_norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mean = x[0].to_dtype(DType::F32)?.pow(2)?.mean([-1], true, None)?;
    Ok(vec![x[0].mul(&mean.add(1e-6)?.rsqrt()?.to_dtype(x[0].dtype())?)?.mul(&x[1])?])
}

pub(crate) fn squares(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].sub(&x[1])?.to_dtype(DType::F32)?.pow(2)?.sum((), false, None)?])
}

pub(crate) fn twenty(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut made = x[0].clone();
    for _ in 0..10 {
        made = made.add(1.0)?.relu()?.mul(0.5)?;
    }
    Ok(vec![made])
}
