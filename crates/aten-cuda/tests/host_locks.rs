//! Locks of host memory while a device is waited for: functions that a stream calls on the host may use the same tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aten_cuda::{DType, Result, Tensor};
use c10_core::Runtime;

/// Has the current stream call a function on the host, behind work that takes long.
fn queue(function: impl FnOnce() + Send + 'static) -> Result<()> {
    let stream = Runtime::with_current(|runtime| runtime.streams().current(0))?;
    stream.sleep(1 << 30)?;
    Ok(stream.launch_host_func(function)?)
}

#[test]
fn a_function_of_the_stream_may_use_the_tensor_that_is_copied() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let host = Tensor::zeros(&[1000], DType::F32, "cpu")?;
    let device = Tensor::zeros(&[1000], DType::F32, "cuda")?;
    for (dtype, value) in [(DType::F32, 7), (DType::F64, 9)] {
        let used = host.clone();
        queue(move || drop(used.fill_(value)))?;
        device.copy_(&host)?;
        // Nothing is converted before the copy: it has what the function wrote.
        if dtype == DType::F32 {
            assert_eq!(device.to_vec::<f32>()?, [7.0; 1000]);
        }
        let used = host.clone();
        queue(move || drop(used.fill_(value)))?;
        Tensor::zeros(&[1000], dtype, "cuda")?.copy_(&host)?;
    }
    // The other way, and through a copy of another dtype.
    for target in [host.clone(), Tensor::zeros(&[1000], DType::F64, "cpu")?] {
        let (used, seen) = (target.clone(), Arc::new(AtomicU64::new(0)));
        let note = Arc::clone(&seen);
        queue(move || note.store(used.numel().cast_unsigned() + u64::from(used.zero_().is_ok()), Ordering::SeqCst))?;
        target.copy_(&device)?;
        assert_eq!(seen.load(Ordering::SeqCst), 1001);
        assert_eq!(target.to_dtype(DType::F32)?.to_vec::<f32>()?, device.to_vec::<f32>()?);
    }
    Ok(())
}

#[test]
fn large_tensors_travel_in_parts_and_arrive_whole() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    // More than one part of 16 MiB, and a rest.
    let count = (5 << 20) + 3;
    let host = Tensor::arange(0, count, 1, Some(DType::I32), "cpu")?;
    let device = host.cuda(None)?;
    assert!(device.cpu()?.to_vec::<i32>()?.into_iter().eq(0..count));
    Ok(())
}
