//! Replaying a graph beside a raw launch of the same executable graph; capturing one beside the raw calls.

use std::time::Instant;

use cuda_api::{CUDAGraph, CaptureMode, Stream};

use crate::flow::kernel::Increment;
use crate::flow::report::Row;
use crate::raw::{Failure, Graphs, Raw};
use bench::median;

/// Nodes of the graphs.
const NODES: [u32; 3] = [1, 100, 1000];
/// Launches of each side.
const LAUNCHES: u32 = 2000;
/// Captures of each side.
const CAPTURES: usize = 21;

/// Measures all rows.
///
/// # Errors
/// The runtime's or the driver's.
pub(crate) fn measure(take: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let raw = Raw::new()?;
    let graphs = raw.graphs()?;
    let stream = Stream::new(None, 0)?;
    let _current = cuda_api::stream(&stream)?;
    let kernel = Increment::new(&stream)?;
    for nodes in NODES {
        take(replay(&raw, &kernel, &stream, nodes)?);
    }
    for nodes in NODES {
        take(capture(&raw, &graphs, &kernel, &stream, nodes)?);
    }
    Ok(())
}

fn captured(kernel: &Increment, stream: &Stream, nodes: u32) -> Result<CUDAGraph, Failure> {
    let mut graph = CUDAGraph::with_keep_graph();
    graph.capture(stream, None, CaptureMode::Relaxed, || (0..nodes).try_for_each(|_| kernel.launch(stream)))?;
    graph.instantiate()?;
    Ok(graph)
}

/// The host's side of a replay. The streams are idle before each, and the sides take turns at being first.
fn replay(raw: &Raw, kernel: &Increment, stream: &Stream, nodes: u32) -> Result<Row, Failure> {
    let mut graph = captured(kernel, stream, nodes)?;
    let exec = graph.raw_cuda_graph_exec()?;
    let (before, mut ours_ns, mut raw_ns) = (kernel.count()?, Vec::new(), Vec::new());
    for round in 0..LAUNCHES {
        for ours in [round % 2 == 0, round % 2 == 1] {
            raw.synchronize()?;
            let begin = Instant::now();
            if ours {
                graph.replay()?;
                ours_ns.push(begin.elapsed().as_secs_f64() * 1e9);
            } else {
                raw.graph_launch(exec, stream.cuda_stream())?;
                raw_ns.push(begin.elapsed().as_secs_f64() * 1e9);
            }
        }
    }
    raw.synchronize()?;
    let (count, expected) = (kernel.count()?.wrapping_sub(before), 2 * LAUNCHES * nodes);
    if count != expected {
        return Err(format!("the graph's kernels ran {count} times, not {expected}").into());
    }
    let row = Row::new(format!("replay {nodes} nodes"), median(&mut ours_ns)).raw("cuGraphLaunch", median(&mut raw_ns));
    Ok(row.torch(format!("graph_replay_cpu_{nodes}_nodes")))
}

/// Capture and instantiation.
fn capture(raw: &Raw, graphs: &Graphs<'_>, kernel: &Increment, stream: &Stream, nodes: u32) -> Result<Row, Failure> {
    let (mut ours_ns, mut raw_ns) = (Vec::new(), Vec::new());
    for _ in 0..CAPTURES {
        raw.synchronize()?;
        let begin = Instant::now();
        let mut graph = CUDAGraph::new();
        graph.capture(stream, None, CaptureMode::Relaxed, || (0..nodes).try_for_each(|_| kernel.launch(stream)))?;
        ours_ns.push(begin.elapsed().as_secs_f64() * 1e9);
        drop(graph);
        raw.synchronize()?;
        let begin = Instant::now();
        let made = graphs.capture(nodes)?;
        raw_ns.push(begin.elapsed().as_secs_f64() * 1e9);
        graphs.destroy(made)?;
    }
    let row = Row::new(format!("capture {nodes} nodes"), median(&mut ours_ns));
    let row = row.raw("capture, launches, instantiate", median(&mut raw_ns));
    Ok(row.torch(format!("graph_capture_{nodes}_nodes")))
}
