//! Memory of many graphs that share a pool (`graph_pool_handle`), beside what PyTorch takes for the same.

mod common;

use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Error, PoolId, Result, Stream};
use common::{DEVICE, Rig, rig};

/// Graphs, one for each batch size: 8, 16, ... 320.
const GRAPHS: usize = 40;

/// What PyTorch 2.11's allocator holds from the driver after the 40 captures: options, whether the largest batch comes
/// first, whether each graph's first and last buffers are kept, bytes reserved.
///
/// Its own code was run on a model of the CUDA runtime, with this script for each batch `n`, in which `a` allocates and
/// `f` frees, all on one stream, `p` being one pool for all:
///
/// ```text
/// begin p
/// a x 4096n;  a h 16384n;  a g 16384n;  a w 65536n;  f g;  a q 8192n;  f h;  f w;  a y 4000n;  f q;  a s 40n;  f s
/// end p
/// f x;  f y      (unless they are kept)
/// ```
const PYTORCH: [(&str, bool, bool, i64); 8] = [
    ("", true, true, 98_566_144),
    ("", true, false, 46_137_344),
    ("", false, true, 117_440_512),
    ("", false, false, 39_845_888),
    ("expandable_segments:True", true, true, 100_663_296),
    ("expandable_segments:True", true, false, 46_137_344),
    ("expandable_segments:True", false, true, 100_663_296),
    ("expandable_segments:True", false, false, 46_137_344),
];

/// The script's work for one batch; the buffers that stay.
fn forward(rig: &Rig, stream: &Stream, batch: usize) -> Result<[DeviceBuffer; 2]> {
    let make = |bytes: usize| {
        let buffer = rig.runtime.memory().buffer(bytes * batch, stream)?;
        buffer.fill(0..bytes * batch, 1, stream)?;
        Ok::<_, Error>(buffer)
    };
    let (input, hidden, gate, wide) = (make(4096)?, make(16_384)?, make(16_384)?, make(65_536)?);
    drop(gate);
    let down = make(8192)?;
    drop((hidden, wide));
    let output = make(4000)?;
    drop(down);
    drop(make(40)?);
    Ok([input, output])
}

#[test]
fn graphs_that_share_a_pool_take_no_more_than_pytorchs() {
    for (settings, largest_first, keeps, pytorch) in PYTORCH {
        let rig = rig();
        rig.runtime.memory().set_settings(settings).unwrap();
        let (stream, pool) = (rig.stream(), PoolId::handle());
        let mut batches: Vec<usize> = (1..=GRAPHS).map(|number| number * 8).collect();
        if largest_first {
            batches.reverse();
        }
        let (mut graphs, mut kept) = (Vec::new(), Vec::new());
        for batch in batches {
            let mut graph = CUDAGraph::on(&rig.runtime, false);
            let work = || forward(&rig, &stream, batch);
            let ends = graph.capture(&stream, Some(pool), CaptureMode::Global, work).unwrap();
            kept.extend(keeps.then_some(ends));
            graphs.push(graph);
        }
        let context = format!("{settings:?}, largest first: {largest_first}, kept: {keeps}");
        assert_eq!(rig.reserved_bytes(), pytorch, "{context}");
        assert!(graphs.iter().all(|graph| graph.report().unwrap().kept_buffers == 0), "{context}: all is of the pool");
        graphs.iter_mut().try_for_each(CUDAGraph::replay).unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        rig.runtime.memory().empty_cache().unwrap();
        assert_eq!(rig.reserved_bytes(), pytorch, "{context}: graphs keep their pool");
        drop((kept, graphs));
        rig.runtime.memory().empty_cache().unwrap();
        assert_eq!(rig.reserved_bytes(), 0, "{context}");
        assert!(rig.runtime.is_valid() && rig.machine.take_reports().is_empty(), "{context}");
    }
}
