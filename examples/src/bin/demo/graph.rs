//! A graph captured once and replayed many times.
//!
//! The graph turns a ring of slots by one place, with memory of its own in between. After a thousand replays the ring
//! stands where a thousand turns leave it, which one replay too many, too few or out of order would not.

use std::time::Instant;

use cuda_api::{CUDAGraph, DeviceBuffer, GraphOptions, current_stream, with_graph};
use examples::checks::{Failure, equal, holds};

use crate::say;

/// Slots of the ring: a prime, so that no number of turns below it comes back to the start.
const SLOTS: usize = 1009;

/// Bytes of a slot.
const SLOT_BYTES: usize = 64;

const BYTES: usize = SLOTS * SLOT_BYTES;

/// How often the graph is replayed.
const REPLAYS: usize = 1000;

/// Captures, replays and looks at every byte.
pub(crate) fn run() -> Result<(), Failure> {
    let ring = DeviceBuffer::new(BYTES, None)?;
    ring.copy_from_slice(0, &turned(0))?;
    let mut graph = CUDAGraph::new();
    let between = with_graph(&mut graph, GraphOptions::default(), || Ok(turn(&ring)?))?;
    equal("nodes of the graph", 3, graph.node_count())?;
    cuda_api::synchronize(None)?;
    equal("the ring after the capture, which runs nothing", turned(0), ring.to_vec()?)?;
    let begin = Instant::now();
    for _ in 0..REPLAYS {
        graph.replay()?;
    }
    let launched = begin.elapsed().as_secs_f64();
    cuda_api::synchronize(None)?;
    let done = begin.elapsed().as_secs_f64();
    holds(format!("the ring stands where {REPLAYS} turns leave it"), ring.to_vec()? == turned(REPLAYS))?;
    let nodes = graph.node_count();
    say(format!("  {nodes} nodes captured, replayed {REPLAYS} times: {:.1} us each", done * 1e6 / 1000.0));
    say(format!("  {:.1} us of that to launch; all bytes as expected", launched * 1e6 / 1000.0));
    drop(between);
    graph.reset()?;
    Ok(())
}

/// Queues one turn on the current stream, through memory allocated for it.
fn turn(ring: &DeviceBuffer) -> Result<DeviceBuffer, cuda_api::Error> {
    let stream = current_stream(None)?;
    let between = DeviceBuffer::new(BYTES, None)?;
    between.copy_from_buffer(SLOT_BYTES, ring, 0..BYTES - SLOT_BYTES, &stream)?;
    between.copy_from_buffer(0, ring, BYTES - SLOT_BYTES..BYTES, &stream)?;
    ring.copy_from_buffer(0, &between, 0..BYTES, &stream)?;
    Ok(between)
}

/// The ring after some turns: each slot is filled with its number's low byte and high byte in turn.
fn turned(turns: usize) -> Vec<u8> {
    let slot = |place: usize| (place + SLOTS - turns % SLOTS) % SLOTS;
    (0..BYTES).map(|byte| slot(byte / SLOT_BYTES).to_le_bytes()[byte % 2]).collect()
}
