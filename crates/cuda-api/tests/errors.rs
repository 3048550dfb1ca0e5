//! One error type for bodies of closures: errors of tensor operations, the runtime, files, process groups and timelines
//! convert to it by `?` without losing information.

use std::error::Error as _;
use std::sync::Arc;

use cuda_api::torch::{self, Tensor};
use cuda_api::{
    CUDAGraph, CaptureOutcome, DeviceBuffer, GraphOptions, MemPool, MemPoolOptions, Stream, capture_or_run,
    current_device, current_stream, device_of, record_graph, synchronize, with_device, with_graph, with_mem_pool,
    with_stream,
};

/// Returns a machine with two devices.
fn rig() -> testkit::SimulatedRuntime {
    testkit::SimulatedRuntime::new(testkit::Config::default().seed(2).devices(2))
}

fn ones() -> torch::Result<Tensor> {
    torch::ones(&[4], torch::float32, "cuda")
}

/// Runs an operation that torch refuses.
fn refused() -> torch::Result<Tensor> {
    torch::add(&ones()?, &torch::ones(&[3], torch::float32, "cuda")?)
}

#[test]
fn every_body_takes_operations_and_calls_of_the_runtime() -> torch::Result<()> {
    let _rig = rig();
    let (side, pool) = (Stream::new(None, 0)?, MemPool::new(MemPoolOptions::default())?);
    let sum = with_stream(&side, || {
        DeviceBuffer::new(64, None)?.fill(.., 1, None)?;
        torch::add(&ones()?, &ones()?)
    })?;
    side.synchronize()?;
    assert_eq!((sum.to_vec::<f32>()?, current_stream(None)?.is_default()), (vec![2.0; 4], true));
    let there = with_device(1, || {
        assert_eq!(current_device()?, 1);
        ones()
    })?;
    assert_eq!(there.device().index, Some(1));
    let inside = with_mem_pool(&pool, None, || ones()?.mul(3))?;
    assert!(pool.snapshot().iter().flat_map(|segment| &segment.blocks).any(|block| block.address == inside.data_ptr()));

    let mut graph = CUDAGraph::new();
    let doubled = with_graph(&mut graph, GraphOptions::default(), || {
        assert!(cuda_api::is_current_stream_capturing()?);
        inside.mul(2)
    })?;
    graph.replay()?;
    assert_eq!(doubled.to_vec::<f32>()?, [6.0; 4]);

    let buffer = DeviceBuffer::new(64, None)?;
    let mut recorded = CUDAGraph::new();
    let tripled = record_graph(&mut recorded, GraphOptions::default(), |scope| {
        scope.fill(&buffer, .., 3)?;
        inside.mul(3)
    })?;
    recorded.replay()?;
    assert_eq!((tripled.to_vec::<f32>()?, buffer.to_vec()?), (vec![9.0; 4], vec![3; 64]));
    Ok(())
}

#[test]
fn a_body_that_fails_ends_what_was_begun_and_its_error_comes_back() -> torch::Result<()> {
    let _rig = rig();
    let text = refused().unwrap_err().to_string();
    assert!(text.starts_with("The size of tensor a (4) must match the size of tensor b (3)"), "{text}");
    let (side, pool) = (Stream::new(None, 0)?, MemPool::new(MemPoolOptions::default())?);
    let mut graph = CUDAGraph::new();
    let failures = [
        with_stream(&side, refused),
        with_device(1, refused),
        with_mem_pool(&pool, None, refused),
        with_graph(&mut graph, GraphOptions::default(), refused),
        record_graph(&mut graph, GraphOptions::default(), |_| refused()),
    ];
    for failure in failures {
        let error = failure.unwrap_err();
        assert!(matches!(error, torch::Error::Tensor(_)), "{error:?}");
        assert_eq!(error.to_string(), text);
    }
    let error = capture_or_run(&mut graph, GraphOptions::default(), refused).unwrap_err();
    assert_eq!(error.to_string(), text, "torch refuses it with and without a capture");
    assert!(current_stream(None)?.is_default() && current_device()? == 0);
    assert!(!cuda_api::is_current_stream_capturing()?);
    // No capture is left open on any stream: device memory can be allocated and waited for.
    let sum = with_graph(&mut graph, GraphOptions::default(), || ones()?.add(1))?;
    graph.replay()?;
    synchronize(None)?;
    assert_eq!(sum.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

#[test]
fn a_body_of_operations_that_cannot_be_captured_runs_at_once() -> torch::Result<()> {
    let _rig = rig();
    let (one, mut graph) = (ones()?, CUDAGraph::new());
    let outcome = capture_or_run(&mut graph, GraphOptions::default(), || one.mul(2)?.to_vec::<f32>())?;
    let CaptureOutcome::RanEagerly { value, error } = outcome else { panic!("a capture forbids reading: {outcome:?}") };
    assert_eq!(value, [2.0; 4]);
    assert!(error.runtime().is_some_and(cuda_api::Error::is_caused_by_capture), "{error:?}");
    let outcome = capture_or_run(&mut graph, GraphOptions::default(), || one.mul(2))?;
    assert!(matches!(outcome, CaptureOutcome::Captured(_)));
    Ok(())
}

#[test]
fn errors_of_other_parts_convert_and_keep_their_text_and_source() {
    let _rig = rig();
    let file = || -> torch::Result<()> {
        cuda_api::gds::GdsFile::new("/nonexistent/file", cuda_api::gds::OpenFlags::RDONLY)?;
        Ok(())
    };
    let error = file().unwrap_err();
    let inner = error.downcast_ref::<cuda_storage::Error>().unwrap();
    assert!(matches!(inner, cuda_storage::Error::Io { verb: "open", .. }), "{inner:?}");
    assert_eq!(error.to_string(), inner.to_string());
    assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));

    let trace = || -> torch::Result<()> {
        let recorder = cuda_api::timeline::record(&cuda_api::timeline::TimelineOptions::default())?;
        cuda_api::timeline::export_chrome_trace(&recorder.finish(), "/nonexistent/folder/trace.json")
    };
    let error = trace().unwrap_err();
    assert!(error.downcast_ref::<memory_viz::Error>().is_some());
    assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));

    let snapshot = || -> torch::Result<()> { Ok(cuda_api::dump_snapshot("/nonexistent/folder/snapshot.pickle")?) };
    let error = snapshot().unwrap_err();
    assert!(error.downcast_ref::<memory_viz::Error>().is_some());

    let group = || -> torch::Result<()> { Err(cuda_dist::Error::Destroyed)? };
    let error = group().unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(cuda_dist::Error::Destroyed)));
    assert_eq!(error.to_string(), cuda_dist::Error::Destroyed.to_string());
}

/// An operation's error that passed through another crate converts back to the original error.
#[test]
fn an_operations_error_is_not_wrapped_twice() {
    let _rig = rig();
    let text = refused().unwrap_err().to_string();
    let storage = torch::Error::from(cuda_storage::Error::from(refused().unwrap_err()));
    let shared = Arc::new(refused().unwrap_err());
    let dist = torch::Error::from(cuda_dist::Error::Tensor(shared.clone()));
    for error in [storage, dist] {
        assert!(matches!(error, torch::Error::Tensor(_)), "{error:?}");
        assert_eq!(error.to_string(), text);
    }
    let memory = with_stream(current_stream(None).unwrap(), || torch::ones(&[1 << 45], torch::float32, "cuda"));
    assert!(memory.unwrap_err().is_out_of_memory());
}

#[test]
fn the_device_of_a_tensor_or_a_storage_is_current() -> torch::Result<()> {
    let _rig = rig();
    let there = torch::ones(&[4], torch::float32, "cuda:1")?;
    let on = |guard: cuda_api::Result<cuda_api::DeviceGuard>| -> torch::Result<_> {
        let _guard = guard?;
        Ok(current_device()?)
    };
    assert_eq!(on(device_of(&there))?, 1);
    assert_eq!(on(device_of(there.storage()))?, 1);
    assert_eq!(on(device_of(&torch::ones(&[4], torch::float32, "cpu")?))?, 0);
    let _one = cuda_api::device(1)?;
    assert_eq!(on(device_of(&torch::ones(&[4], torch::float32, "cpu")?))?, 1, "the host changes nothing");
    Ok(())
}
