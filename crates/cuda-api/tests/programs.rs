//! Small whole programs as users write them: a classifier trained by a CUDA graph, copies and work on several streams,
//! and recovery from out of memory.

use cuda_api::torch::{self, Tensor};
use cuda_api::{CUDAGraph, Event, EventOptions, GraphOptions, Stream};

/// Returns linearly separable samples of two classes, around (1, 1) and around (-1, -1).
fn points(count: i64) -> torch::Result<(Tensor, Tensor)> {
    let labels = torch::arange(0, count, 1, torch::int64, "cuda")?.remainder(2)?;
    let centres = labels.to_dtype(torch::float32)?.mul(2)?.sub(1)?.unsqueeze(1)?;
    let points = torch::randn(&[count, 2], torch::float32, "cuda")?.mul(0.3)?.add(&centres)?;
    Ok((points, labels))
}

/// Runs one step of gradient descent for a linear classifier, written by hand; returns the loss.
fn step(x: &Tensor, labels: &Tensor, weight: &Tensor) -> torch::Result<Tensor> {
    let logits = torch::matmul(x, weight)?;
    let classes = torch::arange(0, 2, 1, torch::int64, "cuda")?;
    let hot = labels.unsqueeze(1)?.eq(&classes)?.to_dtype(torch::float32)?;
    let loss = logits.log_softmax(1, None)?.mul(&hot)?.sum(None, false, None)?.neg()?.div(x.size(0)?)?;
    let slope = logits.softmax(1, None)?.sub(&hot)?.div(x.size(0)?)?;
    weight.sub_(&torch::matmul(&x.t()?, &slope)?.mul(0.5)?)?;
    Ok(loss)
}

#[test]
fn a_classifier_is_trained_by_a_graph() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    cuda_api::manual_seed(1)?;
    let (x, labels) = points(64)?;
    let weight = torch::zeros(&[2, 2], torch::float32, "cuda")?;

    let warm = Stream::new(None, 0)?;
    warm.wait_stream(&cuda_api::current_stream(None)?)?;
    let first = cuda_api::with_stream(&warm, || step(&x, &labels, &weight)?.item())?;
    cuda_api::current_stream(None)?.wait_stream(&warm)?;

    let mut graph = CUDAGraph::new();
    let loss = cuda_api::with_graph(&mut graph, GraphOptions::default(), || step(&x, &labels, &weight))?;
    for _ in 0..20 {
        let (next, next_labels) = points(64)?;
        x.copy_(&next)?;
        labels.copy_(&next_labels)?;
        graph.replay()?;
    }
    let (first, last) = (first.to_f64(), loss.item()?.to_f64());
    assert!(last < 0.1 && first > 0.6, "{first} {last}");
    let right = torch::matmul(&x, &weight)?.argmax(1, false)?.eq(&labels)?.sum(None, false, None)?.item()?.to_i64();
    assert!(right >= 62, "{right} of 64");
    Ok(())
}

#[test]
fn copies_and_work_overlap_on_streams() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (copies, work) = (Stream::new(None, 0)?, Stream::new(None, -1)?);
    let mut results = Vec::new();
    for part in 0..4_i16 {
        let host = torch::full(&[1000], i64::from(part), torch::float32, "cpu")?.pin_memory()?;
        let (there, arrived) = cuda_api::with_stream(&copies, || {
            let there = host.to_device_non_blocking("cuda")?;
            let arrived = Event::new(EventOptions::default());
            arrived.record(None)?;
            Ok((there, arrived))
        })?;
        arrived.wait(&work)?;
        results.push(cuda_api::with_stream(&work, || there.mul(2)?.add(1))?);
        there.record_stream(&work)?;
    }
    work.synchronize()?;
    for (part, result) in (0..4_i16).zip(&results) {
        assert_eq!(result.to_vec::<f32>()?, [f32::from(part) * 2.0 + 1.0; 1000]);
    }
    Ok(())
}

/// Halves the batch size until the batch fits.
fn largest_batch(mut batch: i64) -> torch::Result<i64> {
    loop {
        let memory = || torch::empty(&[batch, 1 << 20], torch::float32, "cuda");
        match memory().and_then(|input| Ok((input, memory()?))) {
            Ok(_) => return Ok(batch),
            Err(error) if error.is_out_of_memory() => {
                cuda_api::empty_cache()?;
                batch /= 2;
            }
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_is_halved() -> torch::Result<()> {
    let _simulated = testkit::SimulatedRuntime::new(testkit::Config::default().capacity(1 << 30));
    let batch = largest_batch(4096)?;
    assert!((64..=128).contains(&batch), "{batch} rows of 4 MiB, twice");
    let error = torch::zeros(&[1 << 40], torch::float32, "cuda").expect_err("it does not fit");
    let cause = error.runtime().expect("the runtime has refused it");
    assert!(matches!(cause, cuda_api::Error::OutOfMemory(_)), "{cause}");
    assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate"), "{error}");
    Ok(())
}
