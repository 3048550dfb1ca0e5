//! Functions of tensors that are captured once and replayed by each call.
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use std::cell::Cell;

use cuda_api::torch::{self, Result, Tensor};
use cuda_api::{ForwardFn, Graphable, Pass, make_graphed_callables};

fn full(value: f32) -> Result<Tensor> {
    torch::full(&[2, 3], value, torch::float32, "cuda")
}

fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.to_vec::<f32>()
}

/// a * b + a, and the sum of the arguments.
fn mixed(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let [a, b] = inputs else { panic!("two arguments, not {}", inputs.len()) };
    Ok(vec![a.mul(b)?.add(a)?, a.add(b)?])
}

/// The gradients of the first result of [`mixed`] for its first argument, and of both for the second one.
fn mixed_slopes(pass: &Pass<'_>) -> Result<Vec<Option<Tensor>>> {
    let (a, b) = (&pass.inputs[0], &pass.inputs[1]);
    let [product, sum] = pass.grad_outputs else { panic!("two gradients") };
    Ok(vec![Some(product.mul(&b.add(1)?)?.add(sum)?), Some(product.mul(a)?.add(sum)?)])
}

#[test]
fn calls_replay_on_their_arguments() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let sample = [full(0.0)?, full(0.0)?];
    let mut graphed = make_graphed_callables(&[Graphable::new(&mixed)], &[&sample], None, None)?.remove(0);
    let addresses: Vec<u64> = graphed.static_outputs().iter().map(Tensor::data_ptr).collect();
    for (a, b) in [(2.0, 5.0), (-1.0, 4.0), (3.0, 3.0)] {
        let outputs = graphed.call(&[full(a)?, full(b)?])?;
        assert_eq!(outputs.iter().map(Tensor::data_ptr).collect::<Vec<_>>(), addresses);
        assert_eq!(values(&outputs[0])?, [a * b + a; 6]);
        assert_eq!(values(&outputs[1])?, [a + b; 6]);
    }
    // The static inputs are the samples: what was copied there is what the last call was given.
    assert_eq!(values(&sample[0])?, [3.0; 6]);
    // They need no copies, and they may be swapped.
    sample[0].fill_(7)?;
    assert_eq!(values(&graphed.call(&sample)?[1])?, [10.0; 6]);
    let swapped = [sample[1].clone(), sample[0].clone()];
    let outputs = graphed.call(&swapped)?;
    assert_eq!(values(&outputs[0])?, [3.0 * 7.0 + 3.0; 6]);
    assert_eq!((values(&sample[0])?, values(&sample[1])?), (vec![3.0; 6], vec![7.0; 6]));
    Ok(())
}

#[test]
fn gradients_are_captured_too() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let sample = [full(0.0)?, full(0.0)?];
    let callables = [Graphable::with_backward(&mixed, &mixed_slopes)];
    let mut graphed = make_graphed_callables(&callables, &[&sample], 1, None)?.remove(0);
    assert_eq!(graphed.static_grad_outputs().len(), 2);
    assert!(graphed.backward_graph().is_some_and(|graph| graph.node_count() > 0));
    for (a, b) in [(2.0, 5.0), (-1.0, 4.0)] {
        graphed.call(&[full(a)?, full(b)?])?;
        let gradients = graphed.backward(&[full(10.0)?, full(0.5)?])?;
        assert_eq!(values(gradients[0].as_ref().unwrap())?, [10.0 * (b + 1.0) + 0.5; 6]);
        assert_eq!(values(gradients[1].as_ref().unwrap())?, [10.0 * a + 0.5; 6]);
    }
    Ok(())
}

#[test]
fn several_callables_share_a_pool_and_run_forwards_and_backwards() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let order = std::cell::RefCell::new(Vec::new());
    let first = |inputs: &[Tensor]| {
        order.borrow_mut().push("forward 1");
        Ok(vec![inputs[0].mul(2)?])
    };
    let second = |inputs: &[Tensor]| {
        order.borrow_mut().push("forward 2");
        Ok(vec![inputs[0].square()?])
    };
    let first_slope = |pass: &Pass<'_>| {
        order.borrow_mut().push("backward 1");
        Ok(vec![Some(pass.grad_outputs[0].mul(2)?)])
    };
    let second_slope = |pass: &Pass<'_>| {
        order.borrow_mut().push("backward 2");
        Ok(vec![Some(pass.grad_outputs[0].mul(&pass.inputs[0])?.mul(2)?)])
    };
    let callables = [Graphable::with_backward(&first, &first_slope), Graphable::with_backward(&second, &second_slope)];
    let samples = [[full(0.0)?], [full(0.0)?]];
    let pool = cuda_api::graph_pool_handle();
    let mut graphed = make_graphed_callables(&callables, &[&samples[0], &samples[1]], 0, pool)?;
    assert_eq!(*order.borrow(), ["forward 1", "forward 2", "backward 2", "backward 1"]);
    // (2 x)^2 and its slope, 8 x, each call on a stream of its own.
    let side = cuda_api::Stream::new(None, 0)?;
    let between = graphed[0].call(&[full(3.0)?])?;
    side.wait_stream(&cuda_api::current_stream(None)?)?;
    let result = {
        let _side = cuda_api::stream(&side)?;
        graphed[1].call(&between)?
    };
    cuda_api::current_stream(None)?.wait_stream(&side)?;
    assert_eq!(values(&result[0])?, [36.0; 6]);
    let gradient = graphed[1].backward(&[full(1.0)?])?.remove(0).unwrap();
    let gradient = graphed[0].backward(&[gradient])?.remove(0).unwrap();
    assert_eq!(values(&gradient)?, [24.0; 6]);
    Ok(())
}

#[test]
fn warm_up_runs_as_often_as_it_is_told() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let runs = Cell::new(0);
    let counted = |inputs: &[Tensor]| {
        runs.set(runs.get() + 1);
        // On a stream of its own, whether it is captured or not.
        assert_ne!(cuda_api::current_stream(None)?, cuda_api::default_stream(None)?);
        Ok(vec![inputs[0].neg()?])
    };
    for (iterations, expected) in [(None, 4), (Some(0), 1), (Some(11), 12)] {
        runs.set(0);
        make_graphed_callables(&[Graphable::new(&counted)], &[&[full(1.0)?]], iterations, None)?;
        assert_eq!(runs.get(), expected);
    }
    Ok(())
}

#[test]
fn random_numbers_go_on_with_every_call() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let noise = |inputs: &[Tensor]| Ok(vec![inputs[0].rand_like(None)?]);
    let mut graphed = make_graphed_callables(&[Graphable::new(&noise)], &[&[full(0.0)?]], None, None)?.remove(0);
    cuda_api::manual_seed(5)?;
    let replayed = [values(&graphed.call(&[full(0.0)?])?[0])?, values(&graphed.call(&[full(0.0)?])?[0])?];
    cuda_api::manual_seed(5)?;
    let drawn = [values(&full(0.0)?.rand_like(None)?)?, values(&full(0.0)?.rand_like(None)?)?];
    assert_eq!(replayed, drawn);
    Ok(())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, text: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(text), "{error:?} should say {text:?}");
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let host = torch::zeros(&[2, 3], torch::float32, "cpu")?;
    let (one, two) = (full(1.0)?, full(2.0)?);
    let make = |sample: &[Tensor]| make_graphed_callables(&[Graphable::new(&mixed)], &[sample], 1, None);
    refused(make_graphed_callables(&[Graphable::new(&mixed)], &[], 1, None), "1 callables with sample arguments for 0");
    refused(make(&[one.clone(), host.clone()]), "argument 1 is on cpu, but the graph is on cuda:0");
    refused(make(&[one.clone(), one.view(&[6])?]), "sample arguments 0 and 1 of callable 0 are the same memory");
    let mut graphed = make(&[one.clone(), two.clone()])?.remove(0);
    refused(graphed.call(&[full(1.0)?]), "1 arguments for a graph that was captured with 2");
    let long = torch::zeros(&[2, 3], torch::int64, "cuda")?;
    refused(
        graphed.call(&[full(1.0)?, long]),
        "argument 1 is a tensor of torch.int64 with the shape [2, 3], but the graph was captured with one of \
         torch.float32 with the shape [2, 3]",
    );
    let row = torch::zeros(&[3], torch::float32, "cuda")?;
    refused(graphed.call(&[row, full(1.0)?]), "argument 0 is a tensor of torch.float32 with the shape [3], but");
    refused(graphed.call(&[host.clone(), full(1.0)?]), "at least two devices, cuda:0 and cpu!");
    refused(graphed.backward(&[full(1.0)?]), "the callable was captured without a backward");
    // Nothing of the refused calls was written.
    assert_eq!((values(&one)?, values(&two)?), (vec![1.0; 6], vec![2.0; 6]));
    let to_host = |inputs: &[Tensor]| Ok(vec![inputs[0].neg()?, host.clone()]);
    let made = make_graphed_callables(&[Graphable::new(&to_host)], &[&[full(1.0)?]], 0, None);
    refused(made, "result 1 is on cpu, but the graph is on cuda:0");
    Ok(())
}

#[test]
fn gradients_that_do_not_fit_are_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let none = |_: &Pass<'_>| Ok(vec![]);
    let short = |pass: &Pass<'_>| Ok(vec![None, Some(pass.grad_outputs[0].sum((), false, None)?)]);
    let make = |backward| {
        let callables = [Graphable::with_backward(&mixed, backward)];
        make_graphed_callables(&callables, &[&[full(1.0)?, full(2.0)?]], 0, None)
    };
    refused(make(&none), "0 gradients for 2 arguments");
    refused(make(&short), "gradient 1 is a tensor of torch.float32 with the shape [], but");
    Ok(())
}

#[test]
fn a_failed_capture_leaves_nothing() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let sample = [full(1.0)?];
    let before = cuda_api::memory_allocated(None)?;
    let waits: &ForwardFn<'_> = &|inputs: &[Tensor]| {
        let twice = inputs[0].mul(2)?;
        twice.item()?;
        Ok(vec![twice])
    };
    assert!(make_graphed_callables(&[Graphable::new(waits)], &[&sample], 0, None).is_err());
    assert!(!cuda_api::is_current_stream_capturing()?);
    cuda_api::synchronize(None)?;
    assert_eq!(cuda_api::memory_allocated(None)?, before);
    assert_eq!(values(&sample[0].neg()?)?, [-1.0; 6]);
    Ok(())
}
