//! Trains a small network: on the host, on the device call by call, and on the device as a captured graph.
//!
//! On one device the losses are the same to the bit whether its steps are queued call by call or replayed. Between
//! devices they differ by the order in which sums round, and by nothing that grows.

use std::time::Instant;

use cuda_api::{CUDAGraph, GraphOptions, torch};
use examples::checks::{Failure, equal, holds};
use examples::progress::Progress;

use crate::network::{Data, Network};
use crate::say;

/// Steps of the training.
const STEPS: usize = 200;

/// How far losses of two devices may lie apart.
const APART: f64 = 1e-4;

/// Trains in all three ways and compares.
pub(crate) fn run() -> Result<(), Failure> {
    let host = eager("on the host    ", &Network::new("cpu")?, &Data::new("cpu")?)?;
    let (network, data) = (Network::new("cuda")?, Data::new("cuda")?);
    let eager = eager("on the device  ", &network, &data)?;
    let trained = network.bits()?;
    network.copy_(&Network::new("cuda")?)?;
    let replayed = replay(&network, &data)?;
    holds("the loss falls to a tenth", eager[STEPS - 1] * 10.0 < eager[0])?;
    equal("losses of the replayed steps, as bits", bits(&eager), bits(&replayed))?;
    equal("weights of the replayed steps, as bits", trained, network.bits()?)?;
    let apart = host.iter().zip(&eager).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    holds(format!("losses of host and device lie {apart:e} apart, at most {APART:e}"), apart <= APART)?;
    say(format!("  {STEPS} losses and all weights equal to the bit with and without the graph"));
    say(format!("  losses of host and device at most {apart:.1e} apart"));
    Ok(())
}

/// Trains call by call; the loss of each step.
fn eager(label: &'static str, network: &Network, data: &Data) -> Result<Vec<f32>, Failure> {
    steps(label, || network.step(data)?.to_vec::<f32>())
}

/// Captures one step and replays it; the loss of each replay.
fn replay(network: &Network, data: &Data) -> Result<Vec<f32>, Failure> {
    cuda_api::synchronize(None)?;
    let stream = cuda_api::Stream::new(None, 0)?;
    let mut graph = CUDAGraph::new();
    let loss = graph.capture(&stream, None, GraphOptions::default().capture_error_mode, || network.step(data))?;
    let losses = steps("as a graph     ", || {
        graph.replay()?;
        loss.to_vec::<f32>()
    })?;
    say(format!("  a step is {} nodes of the graph", graph.node_count()));
    graph.reset()?;
    Ok(losses)
}

/// Runs the steps and shows how far they are.
fn steps(label: &'static str, mut step: impl FnMut() -> torch::Result<Vec<f32>>) -> Result<Vec<f32>, Failure> {
    let begin = Instant::now();
    let mut progress = Progress::new(label, STEPS);
    let mut losses = Vec::with_capacity(STEPS);
    for done in 1..=STEPS {
        let loss = step()?;
        losses.extend(&loss);
        progress.at(done, || format!("step {done:>3}, loss {:.6}", losses[losses.len() - 1]));
    }
    progress.finish();
    equal("numbers that the losses are", STEPS, losses.len())?;
    let each = begin.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(STEPS)?);
    say(format!("  {label}{each:.1} us a step, the last loss {:.8}", losses[STEPS - 1]));
    Ok(losses)
}

fn bits(losses: &[f32]) -> Vec<u32> {
    losses.iter().map(|loss| loss.to_bits()).collect()
}
