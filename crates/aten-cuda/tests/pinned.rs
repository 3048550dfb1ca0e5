//! Tensors in pinned memory, and copies that are not waited for.

mod common;

use aten_cuda::{DType, Error, Result, Tensor, synchronize};
use c10_core::{CUDAGraph, CaptureMode, Runtime, Stream, SyncDebugMode};
use common::{assert_same, layouts};
use testkit::{Config, SimulatedRuntime};

/// As many cycles as keep a stream busy until somebody waits.
const LONG: i64 = 1 << 30;

fn ramp(count: i64) -> Result<Tensor> {
    Tensor::arange(0, count, 1, Some(DType::F32), "cpu")
}

/// The current stream of the device works for long before whatever comes next.
fn busy() -> Result<Stream> {
    let stream = Runtime::with_current(|runtime| runtime.streams().current(0))?;
    stream.sleep(LONG)?;
    Ok(stream)
}

#[test]
fn pinned_tensors_are_tensors_of_the_host() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in [DType::F32, DType::C128, DType::Bool, DType::I16] {
        for plain in layouts(dtype)? {
            let pinned = plain.pin_memory()?;
            assert!(
                pinned.is_pinned() && !plain.is_pinned() && pinned.pin_memory()?.storage().is_same(pinned.storage())
            );
            assert_eq!((pinned.device(), pinned.sizes()), (plain.device(), plain.sizes()));
            assert_eq!(pinned.to_bytes()?, plain.to_bytes()?);
            assert_same(&pinned.copy()?, &plain.copy()?);
            assert_same(&pinned.contiguous()?.flip(&[0])?, &plain.contiguous()?.flip(&[0])?);
            assert_same(&pinned.add(&pinned)?, &plain.add(&plain)?);
            if dtype != DType::Bool {
                assert_same(&pinned.sum((), false, None)?, &plain.sum((), false, None)?);
            }
        }
    }
    Ok(())
}

#[test]
fn operations_write_pinned_memory_in_place() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let pinned = ramp(12)?.pin_memory()?.view(&[3, 4])?;
    pinned.add_(&pinned.select(0, 1)?.copy()?)?;
    pinned.t()?.mul_(2)?;
    pinned.index_put_(
        &[Some(&Tensor::from_slice(&[2_i64], &[1])?)],
        &Tensor::zeros(&[1, 4], DType::F32, "cpu")?,
        false,
    )?;
    let plain = ramp(12)?.view(&[3, 4])?;
    plain.add_(&plain.select(0, 1)?.copy()?)?;
    plain.mul_(2)?;
    plain.select(0, 2)?.fill_(0)?;
    assert_same(&pinned.copy()?, &plain);
    assert!(pinned.is_pinned() && pinned.data_ptr() > 0 && pinned.data_ptr() != plain.data_ptr());
    Ok(())
}

#[test]
fn devices_have_no_pinned_tensors() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let device = Tensor::ones(&[2], DType::F32, "cuda")?;
    let text = "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned";
    assert_eq!(device.pin_memory().unwrap_err().to_string(), text);
    assert!(!device.is_pinned());
    assert!(Tensor::empty_pinned(&[-1], DType::F32).is_err());
    assert!(Tensor::empty_pinned(&[0, 3], DType::F32)?.to_vec::<f32>()?.is_empty());
    Ok(())
}

#[test]
fn copies_that_do_not_block_return_at_once_and_arrive() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    // Warnings would tell of a call that waits; here it is refused.
    Runtime::with_current(|runtime| runtime.sync_debug().set(SyncDebugMode::Error))?;
    let (plain, pinned) = (ramp(100)?, ramp(100)?.pin_memory()?);
    for source in [&plain, &pinned] {
        let stream = busy()?;
        let device = source.cuda_non_blocking(None)?;
        assert!(!stream.query()?, "the call has not waited");
        let half = Tensor::empty(&[100], DType::F16, "cuda")?;
        half.copy_non_blocking_(source)?;
        let back = device.to_device_non_blocking("cpu")?;
        let target = Tensor::empty_pinned(&[100], DType::F16)?;
        target.copy_non_blocking_(&half)?;
        assert!(!stream.query()? && back.is_pinned());
        synchronize(None)?;
        assert_same(&back.copy()?, &plain);
        assert_same(&target.copy()?, &plain.to_dtype(DType::F16)?);
    }
    // Elements that are not pinned were taken before the call returned.
    busy()?;
    let device = plain.cuda_non_blocking(None)?;
    plain.fill_(7)?;
    synchronize(None)?;
    assert_same(
        &device.to_device_non_blocking("cpu").and_then(|back| synchronize(None).and(back.copy()))?,
        &ramp(100)?,
    );
    Runtime::with_current(|runtime| runtime.sync_debug().set(SyncDebugMode::Default))?;
    Ok(())
}

#[test]
fn copies_that_block_are_done() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let pinned = ramp(50)?.pin_memory()?;
    let stream = busy()?;
    let device = pinned.cuda(None)?;
    assert!(stream.query()?);
    let target = Tensor::empty_pinned(&[50], DType::F32)?;
    busy()?;
    target.copy_(&device)?;
    assert_eq!(target.to_vec::<f32>()?, ramp(50)?.to_vec::<f32>()?);
    // A strided target is written in the places that it has.
    let wide = Tensor::empty_pinned(&[50, 2], DType::F32)?;
    wide.fill_(-1)?;
    wide.select(1, 1)?.copy_(&device)?;
    assert_eq!(wide.select(1, 0)?.to_vec::<f32>()?, [-1.0; 50]);
    assert_same(&wide.select(1, 1)?.copy()?, &ramp(50)?);
    Ok(())
}

#[test]
fn pinned_memory_waits_for_the_copies_that_use_it() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let pinned = ramp(1000)?.pin_memory()?;
    let address = pinned.data_ptr();
    let stream = busy()?;
    let device = pinned.cuda_non_blocking(None)?;
    drop(pinned);
    let other = Tensor::empty_pinned(&[1000], DType::F32)?;
    assert_ne!(other.data_ptr(), address, "the copy has still to read it");
    other.fill_(0)?;
    stream.synchronize()?;
    drop(other);
    assert_same(&device.cpu()?, &ramp(1000)?);
    let again = [Tensor::empty_pinned(&[1000], DType::F32)?, Tensor::empty_pinned(&[1000], DType::F32)?];
    assert!(again.iter().any(|tensor| tensor.data_ptr() == address));
    Ok(())
}

#[test]
fn captured_copies_read_pinned_memory_at_each_replay() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (source, target) = (ramp(10)?.pin_memory()?, Tensor::empty_pinned(&[10], DType::F32)?);
    let device = source.cuda(None)?;
    device.mul(&device)?;
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    graph.record(&stream, None, CaptureMode::Global, |_| {
        device.copy_non_blocking_(&source)?;
        target.copy_non_blocking_(&device.mul(&device)?).map(drop)
    })?;
    for value in [3.0_f32, 5.0] {
        source.fill_(f64::from(value))?;
        graph.replay()?;
        synchronize(None)?;
        assert_eq!(target.to_vec::<f32>()?, [value * value; 10]);
    }
    let refused = graph_of(&device, &source);
    assert!(matches!(&refused, Err(error) if error.runtime().is_some()), "a copy that waits cannot be captured");
    Ok(())
}

/// Targets of other dtypes and layouts than 6 times 4 elements of `f32` in rows.
fn unlike_targets() -> Result<Vec<Tensor>> {
    let made = |dtype| Tensor::zeros(&[6, 4], dtype, "cuda");
    Ok(vec![
        made(DType::F64)?,
        made(DType::F16)?,
        made(DType::I32)?,
        made(DType::C64)?,
        Tensor::zeros(&[4, 6], DType::F32, "cuda")?.t()?,
        Tensor::zeros(&[6, 8], DType::F32, "cuda")?.slice(1, None, None, 2)?,
        Tensor::zeros(&[6, 8], DType::F64, "cuda")?.narrow(1, 2, 4)?,
    ])
}

/// Views of 6 times 4 elements of `f32`, all of one value: in rows, transposed, repeated, and with gaps.
fn pinned_sources() -> Result<Vec<Tensor>> {
    let made = |sizes: &[i64]| {
        let made = Tensor::empty_pinned(sizes, DType::F32)?;
        made.fill_(1)?;
        Ok::<_, Error>(made)
    };
    Ok(vec![
        made(&[6, 4])?,
        made(&[4, 6])?.t()?,
        made(&[4])?.expand(&[6, 4])?,
        made(&[6, 5])?.narrow(1, 1, 4)?,
        made(&[6, 40])?.slice(1, None, None, 10)?,
    ])
}

#[test]
fn pinned_memory_is_read_when_the_copy_runs_also_where_it_is_converted() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let sevens = Tensor::full(&[6, 4], 7, DType::F32, "cuda")?;
    // The last source has gaps of nine elements: the host packs it when the call is made.
    let sources = pinned_sources()?.into_iter().take(4);
    for (number, source) in sources.enumerate() {
        for target in unlike_targets()? {
            source.storage().pinned().map_or(Ok(()), |pinned| pinned.write(0, &vec![0; pinned.len()]))?;
            // What the copy reads is written by work that the stream has not done when the call is made.
            let stream = busy()?;
            let Some(pinned) = source.storage().pinned() else { panic!("the source is pinned") };
            let Some(from) = sevens.storage().buffer() else { panic!("it is on a device") };
            let bytes = pinned.len().min(from.len());
            from.copy_to_pinned(..bytes, pinned, 0, None)?;
            let from_behind = from.len().min(pinned.len() - bytes);
            from.copy_to_pinned(..from_behind, pinned, bytes, None)?;
            target.copy_non_blocking_(&source)?;
            assert!(!stream.query()?, "the call has not waited");
            synchronize(None)?;
            let expected = Tensor::full(&[6, 4], 7, target.dtype(), "cpu")?;
            assert_eq!(target.cpu()?.contiguous()?.to_bytes()?, expected.to_bytes()?, "source {number}, {target:?}");
        }
    }
    Ok(())
}

#[test]
fn captured_copies_convert_what_pinned_memory_holds_at_each_replay() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (number, source) in pinned_sources()?.into_iter().enumerate() {
        for target in unlike_targets()? {
            // Kernels are loaded before.
            target.copy_non_blocking_(&source)?;
            let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
            graph.record(&stream, None, CaptureMode::Global, |_| target.copy_non_blocking_(&source).map(drop))?;
            for value in [3.0, 5.0] {
                source.as_strided(&[source.storage().nbytes() as i64 / 4], &[1], Some(0))?.fill_(value)?;
                graph.replay()?;
                synchronize(None)?;
                let expected = Tensor::full(&[6, 4], value, target.dtype(), "cpu")?;
                assert_eq!(
                    target.cpu()?.contiguous()?.to_bytes()?,
                    expected.to_bytes()?,
                    "source {number}, {target:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn host_memory_that_is_not_pinned_is_refused_in_a_capture() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (host, device) = (ramp(10)?, ramp(10)?.cuda(None)?);
    let text = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. Please use \
                tensor.pin_memory() or allocate the tensor with pin_memory=True.";
    for [to, from] in [[&device, &host], [&host, &device]] {
        let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
        let mut refused = None;
        graph.record(&stream, None, CaptureMode::Global, |_| {
            refused = to.copy_non_blocking_(from).map(drop).err();
            Ok::<_, Error>(())
        })?;
        assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some(text));
    }
    Ok(())
}

fn graph_of(device: &Tensor, source: &Tensor) -> Result<()> {
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    graph.record(&stream, None, CaptureMode::Global, |_| device.copy_(source).map(drop))
}

#[test]
fn copies_between_devices_follow_the_current_streams_of_both() -> Result<()> {
    let rig = SimulatedRuntime::new(Config::default().devices(2).late_events(true));
    let runtime = rig.runtime();
    let (first, second) = (runtime.streams().pooled(0, 0)?, runtime.streams().pooled(1, 0)?);
    let (_first, _second) = (runtime.streams().guard(&first)?, runtime.streams().guard(&second)?);
    let here = ramp(5000)?.cuda(0)?;
    first.sleep(LONG)?;
    here.mul_(2)?;
    let there = here.cuda_non_blocking(1)?;
    let strided = Tensor::zeros(&[5000, 2], DType::F16, "cuda:1")?;
    strided.select(1, 1)?.copy_non_blocking_(&here)?;
    here.fill_(0)?;
    assert!(!first.query()?);
    assert_same(&there.cpu()?, &ramp(5000)?.mul(2)?);
    assert_same(&strided.select(1, 1)?.cpu()?.contiguous()?, &ramp(5000)?.mul(2)?.to_dtype(DType::F16)?);
    assert_eq!(here.sum((), false, None)?.item()?.to_f64().to_bits(), 0);
    Ok(())
}

#[test]
fn a_pinned_tensor_that_cannot_be_had_is_an_error() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let refused = Tensor::empty_pinned(&[1 << 60], DType::F32);
    assert!(matches!(refused, Err(Error::Tensor(_) | Error::Runtime(_))));
    Ok(())
}
