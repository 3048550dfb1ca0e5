//! Examples from torch's documentation of streams, events and graphs under the stream sanitizer: none of them races.
//!
//! Each example runs under torch's rules and under the byte rules at once, and computes correct values under several
//! seeds. The last tests remove a synchronisation from the programs, and the sanitizer must report it.

use c10_core::Runtime;
use cuda_api::sanitizer::{Sanitizer, SanitizerAction, SanitizerOptions};
use cuda_api::torch::{self, Result, Tensor};
use cuda_api::{CUDAGraph, Event, EventOptions, GraphOptions, Graphable, Stream, graph, make_graphed_callables};
use testkit::{Config, SimulatedRuntime};

fn full(value: f32) -> Result<Tensor> {
    torch::full(&[5], value, torch::float32, "cuda")
}

fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.to_vec::<f32>()
}

fn current() -> Result<Stream> {
    Ok(cuda_api::current_stream(None)?)
}

fn sanitizers() -> [Sanitizer; 2] {
    [SanitizerOptions::default(), SanitizerOptions::ranges()].map(|options| {
        let options = SanitizerOptions { action: SanitizerAction::Collect, ..options };
        Runtime::current().enable_sanitizer(options)
    })
}

/// Runs an example under several seeds, and checks that neither sanitizer reports anything.
fn is_silent(example: impl Fn() -> Result<()>) {
    for seed in 0..5 {
        let _simulated = SimulatedRuntime::new(Config::default().seed(seed));
        let sanitizers = sanitizers();
        example().expect("the example runs");
        let races: Vec<String> =
            sanitizers.iter().flat_map(Sanitizer::take_errors).map(|race| race.to_string()).collect();
        assert_eq!(races, [""; 0], "seed {seed}");
    }
}

/// Runs a program that lacks a synchronisation, and checks that torch's rules report it.
fn is_reported(program: impl FnOnce() -> Result<()>) {
    let _simulated = testkit::simulated_runtime();
    let sanitizers = sanitizers();
    program().expect("races are collected");
    assert!(sanitizers.iter().all(|sanitizer| sanitizer.count() > 0), "{sanitizers:?}");
}

/// Captures the doubling of a tensor after a warm-up on a side stream; returns the graph and its output tensor.
fn doubling(static_input: &Tensor) -> Result<(CUDAGraph, Tensor)> {
    let side = Stream::new(None, 0)?;
    side.wait_stream(&current()?)?;
    {
        let _on = side.guard();
        for _ in 0..3 {
            static_input.mul(2)?;
        }
    }
    current()?.wait_stream(&side)?;
    let mut captured = CUDAGraph::new();
    let capture = graph(&mut captured, GraphOptions::default())?;
    let static_output = static_input.mul(2)?;
    capture.end()?;
    Ok((captured, static_output))
}

#[test]
fn a_graph_is_captured_filled_and_replayed() {
    is_silent(|| {
        let static_input = full(0.0)?;
        let (mut captured, static_output) = doubling(&static_input)?;
        for value in [3.0, 4.0] {
            static_input.copy_(&full(value)?)?;
            captured.replay()?;
            assert_eq!(values(&static_output)?, [value * 2.0; 5]);
        }
        Ok(())
    });
}

#[test]
fn a_graph_is_replayed_on_a_side_stream_that_waits() {
    is_silent(|| {
        let static_input = full(0.0)?;
        let (mut captured, static_output) = doubling(&static_input)?;
        let side = Stream::new(None, 0)?;
        static_input.copy_(&full(3.0)?)?;
        side.wait_stream(&current()?)?;
        {
            let _on = side.guard();
            captured.replay()?;
        }
        current()?.wait_stream(&side)?;
        assert_eq!(values(&static_output)?, [6.0; 5]);
        Ok(())
    });
}

/// Whole-network capture: a forward pass, a gradient and an optimizer step.
#[test]
fn a_training_step_is_captured_as_a_whole() {
    is_silent(|| {
        let (weight, static_input, static_target) = (full(1.0)?, full(0.0)?, full(0.0)?);
        let step = || -> Result<Tensor> {
            let error = weight.mul(&static_input)?.sub(&static_target)?;
            let gradient = error.mul(&static_input)?.mul(2)?;
            weight.sub_(&gradient.mul(0.5)?)?;
            error.square()?.sum(None, false, None)
        };
        let side = Stream::new(None, 0)?;
        side.wait_stream(&current()?)?;
        {
            let _on = side.guard();
            for _ in 0..3 {
                step()?;
            }
        }
        current()?.wait_stream(&side)?;
        let mut captured = CUDAGraph::new();
        let capture = graph(&mut captured, GraphOptions::default())?;
        let static_loss = step()?;
        capture.end()?;
        let data = [(1.0, 5.0, 80.0), (1.0, 5.0, 0.0)];
        for (input, target, loss) in data {
            static_input.copy_(&full(input)?)?;
            static_target.copy_(&full(target)?)?;
            captured.replay()?;
            assert_eq!(static_loss.to_vec::<f32>()?, [loss]);
        }
        assert_eq!(values(&weight)?, [5.0; 5]);
        Ok(())
    });
}

/// Partial-network capture: data-dependent control flow stays outside the graphs.
#[test]
fn parts_of_a_network_are_graphed_callables() {
    is_silent(|| {
        let sample = [full(0.0)?];
        let double = |inputs: &[Tensor]| -> Result<Vec<Tensor>> { Ok(vec![inputs[0].mul(2)?]) };
        let square = |inputs: &[Tensor]| -> Result<Vec<Tensor>> { Ok(vec![inputs[0].square()?]) };
        let callables = [Graphable::new(&double), Graphable::new(&square)];
        let mut graphed = make_graphed_callables(&callables, &[&sample, &sample], None, None)?;
        for value in [3.0, 5.0] {
            let doubled = graphed[0].call(&[full(value)?])?.remove(0);
            let is_large = doubled.to_vec::<f32>()?[0] > 8.0;
            let result = if is_large { graphed[1].call(&[doubled])?.remove(0) } else { doubled.add(1)? };
            let expected = if is_large { 4.0 * value * value } else { 2.0 * value + 1.0 };
            assert_eq!(values(&result)?, [expected; 5]);
        }
        Ok(())
    });
}

#[test]
fn streams_that_fork_off_the_capturing_one_join_it() {
    is_silent(|| {
        let (static_input, side) = (full(1.0)?, Stream::new(None, 0)?);
        let mut captured = CUDAGraph::new();
        let capture = graph(&mut captured, GraphOptions::default())?;
        let before = static_input.add(1)?;
        side.wait_stream(&current()?)?;
        let on_side = {
            let _on = side.guard();
            before.mul(3)?
        };
        let beside = before.mul(5)?;
        current()?.wait_stream(&side)?;
        let static_output = on_side.add(&beside)?;
        capture.end()?;
        for value in [1.0, 2.0] {
            static_input.fill_(value)?;
            captured.replay()?;
            assert_eq!(values(&static_output)?, [(value + 1.0) * 8.0; 5]);
        }
        Ok(())
    });
}

#[test]
fn graphs_that_share_a_pool_are_replayed_in_their_order() {
    is_silent(|| {
        let static_input = full(3.0)?;
        let (mut first, mut second) = (CUDAGraph::new(), CUDAGraph::new());
        let capture = graph(&mut first, GraphOptions::default())?;
        let between = static_input.mul(2)?;
        capture.end()?;
        let options = GraphOptions { pool: Some(first.pool()?), ..GraphOptions::default() };
        let capture = graph(&mut second, options)?;
        let result = between.add(1)?;
        capture.end()?;
        first.replay()?;
        second.replay()?;
        assert_eq!(values(&result)?, [7.0; 5]);
        Ok(())
    });
}

#[test]
fn a_side_stream_waits_and_records_its_use() {
    is_silent(|| {
        let side = Stream::new(None, 0)?;
        let a = full(2.0)?;
        side.wait_stream(&current()?)?;
        let sum = {
            let _on = side.guard();
            let sum = a.sum(None, false, None)?;
            a.record_stream(&side)?;
            sum
        };
        drop(a);
        let _reuses = full(9.0)?;
        current()?.wait_stream(&side)?;
        assert_eq!(sum.to_vec::<f32>()?, [10.0]);
        Ok(())
    });
}

#[test]
fn a_tensor_of_a_side_stream_is_used_on_the_current_one() {
    is_silent(|| {
        let side = Stream::new(None, 0)?;
        let made = {
            let _on = side.guard();
            full(4.0)?
        };
        current()?.wait_stream(&side)?;
        let doubled = made.mul(2)?;
        made.record_stream(&current()?)?;
        drop(made);
        let _reuses = {
            let _on = side.guard();
            full(9.0)?
        };
        assert_eq!(values(&doubled)?, [8.0; 5]);
        Ok(())
    });
}

#[test]
fn events_hand_work_from_stream_to_stream() {
    is_silent(|| {
        let (side, timed) = (Stream::new(None, 0)?, EventOptions { enable_timing: true, ..EventOptions::default() });
        let (start, end) = (Event::new(timed), Event::new(timed));
        let a = full(1.0)?;
        start.record(None)?;
        let ready = current()?.record_event()?;
        side.wait_event(&ready)?;
        {
            let _on = side.guard();
            a.add_(1)?;
            end.record(None)?;
        }
        end.wait(None)?;
        a.mul_(10)?;
        end.synchronize()?;
        cuda_api::synchronize(None)?;
        assert!(start.elapsed_time(&end)? >= 0.0);
        assert_eq!(values(&a)?, [20.0; 5]);
        Ok(())
    });
}

#[test]
fn pinned_memory_is_copied_beside_the_host() {
    is_silent(|| {
        let pinned = torch::full(&[5], 6.0, torch::float32, "cpu")?.pin_memory()?;
        let device = torch::empty(&[5], torch::float32, "cuda")?;
        device.copy_non_blocking_(&pinned)?;
        let back = torch::empty(&[5], torch::float32, "cpu")?.pin_memory()?;
        back.copy_non_blocking_(&device.add(1)?)?;
        current()?.synchronize()?;
        assert_eq!(values(&back)?, [7.0; 5]);
        Ok(())
    });
}

#[test]
fn a_replay_that_its_reader_does_not_wait_for_is_reported() {
    is_reported(|| {
        let static_input = full(0.0)?;
        let (mut captured, static_output) = doubling(&static_input)?;
        let side = Stream::new(None, 0)?;
        side.wait_stream(&current()?)?;
        {
            let _on = side.guard();
            captured.replay()?;
        }
        static_output.add(1)?;
        Ok(())
    });
}

#[test]
fn a_static_input_that_is_filled_beside_a_replay_is_reported() {
    is_reported(|| {
        let static_input = full(0.0)?;
        let (mut captured, _) = doubling(&static_input)?;
        cuda_api::synchronize(None)?;
        captured.replay()?;
        let side = Stream::new(None, 0)?;
        let _on = side.guard();
        static_input.fill_(3.0)?;
        Ok(())
    });
}

#[test]
fn captured_work_that_races_within_its_graph_is_reported() {
    is_reported(|| {
        let (static_input, side) = (full(1.0)?, Stream::new(None, 0)?);
        let mut captured = CUDAGraph::new();
        let capture = graph(&mut captured, GraphOptions::default())?;
        side.wait_stream(&current()?)?;
        {
            let _on = side.guard();
            static_input.add_(1)?;
        }
        static_input.mul_(2)?;
        current()?.wait_stream(&side)?;
        capture.end()?;
        Ok(())
    });
}
