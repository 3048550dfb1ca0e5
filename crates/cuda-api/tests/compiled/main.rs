//! What ends the graph of a compiled function, and what does not: the tables, and what calls do.
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_api::compiler::{Foldability, break_causes, foldabilities, foldability};
use cuda_api::torch::{self, Result, Tensor};
use cuda_api::{DeviceBuffer, Event, EventOptions, MemPool, MemPoolOptions, PoolId, Stream, amp};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

#[test]
fn each_row_of_the_coverage_page_has_one_class() {
    let page = page("coverage.md");
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let rows: BTreeSet<String> = page.lines().filter_map(name).collect();
    let names: Vec<String> = foldabilities().map(|(name, _)| name.to_owned()).collect();
    assert!(rows.len() > 400, "{} rows", rows.len());
    let classes: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(classes.len(), names.len(), "a name has two classes");
    let without: Vec<&String> = rows.difference(&classes).collect();
    assert!(without.is_empty(), "rows of docs/coverage.md without a class in compile/foldability.rs: {without:?}");
    let without: Vec<&String> = classes.difference(&rows).collect();
    assert!(without.is_empty(), "names in compile/foldability.rs without a row in docs/coverage.md: {without:?}");
}

#[test]
fn the_names_that_torch_settles_have_its_classes() {
    use Foldability::{EndsGraph, Folded, Guarded, Node};
    let known = [
        (Folded, "is_available"),
        (Folded, "get_device_properties"),
        (Folded, "_get_device_index"),
        (Folded, "torch.is_autocast_enabled"),
        (Folded, "torch.get_autocast_dtype"),
        (Folded, "_is_compiled"),
        (Folded, "is_built"),
        (Guarded, "current_device"),
        (Guarded, "is_initialized"),
        (EndsGraph, "get_rng_state"),
        (EndsGraph, "set_rng_state"),
        (EndsGraph, "set_device"),
        (EndsGraph, "memory_stats"),
        (EndsGraph, "empty_cache"),
        (Node, "device"),
        (Node, "stream"),
        (Node, "torch.autocast"),
        (Node, "set_stream"),
        (Node, "Stream.wait_stream"),
    ];
    for (class, name) in known {
        assert_eq!(foldability(name), Some(class), "{name}");
    }
}

/// The texts that follow each `settle("` of the sources beneath a folder.
fn causes_beneath(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            causes_beneath(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            // Examples in the documentation have causes of their own.
            let text = fs::read_to_string(&path).unwrap();
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            let text: String = text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
            let after = text.split("settle(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            found.extend(after.map(|(cause, _)| cause.to_owned()));
        }
    }
}

#[test]
fn the_page_and_the_code_have_the_same_causes() {
    let listed: BTreeSet<String> = break_causes().iter().map(|&cause| cause.to_owned()).collect();
    let page = page("compile.md");
    let section = page.split("## What ends a graph").nth(1).unwrap().split("\n## ").next().unwrap();
    let cause = |line: &str| Some(line.strip_prefix("| ")?.split_once(" |")?.0.to_owned());
    let told: BTreeSet<String> = section.lines().filter_map(cause).filter(|cause| cause != "cause").collect();
    assert_eq!(told, listed, "docs/compile.md and compile/foldability.rs");
    let mut given = BTreeSet::new();
    for folder in ["crates/c10-core/src", "crates/aten-cuda/src"] {
        causes_beneath(&root().join(folder), &mut given);
    }
    given.extend(listed.iter().filter(|cause| cause.starts_with("the function leaves")).cloned());
    assert_eq!(given, listed, "what the code gives and compile/foldability.rs");
}

/// The causes with which a call of something between two operations breaks the graph.
fn breaks<R>(called: impl Fn(&Tensor) -> Result<R> + Send + Sync + 'static) -> Result<Vec<&'static str>> {
    let compiled = torch::compile(move |x: &[Tensor]| {
        let made = x[0].add(1)?;
        called(&made)?;
        Ok(vec![made.mul(2)?])
    });
    let x = torch::full(&[4], 3, torch::float32, "cuda")?;
    for _ in 0..3 {
        assert_eq!(compiled.call(&[&x])?[0].to_vec::<f32>()?, [8.0; 4]);
    }
    let report = compiled.report();
    let causes: Vec<&'static str> = report.programs[0].breaks.iter().map(|graph_break| graph_break.cause).collect();
    assert_eq!(report.programs[0].called.is_some(), !causes.is_empty(), "{report}");
    Ok(causes)
}

/// Checks the class of a name against what a call of it does.
#[track_caller]
fn check<R>(name: &str, called: impl Fn(&Tensor) -> Result<R> + Send + Sync + 'static) {
    let causes = breaks(called).unwrap();
    let ends = foldability(name) == Some(Foldability::EndsGraph);
    assert_eq!(!causes.is_empty(), ends, "{name} is {:?} and gave {causes:?}", foldability(name));
    assert!(causes.iter().all(|cause| break_causes().contains(cause)), "{name}: {causes:?}");
}

#[test]
fn what_is_folded_or_guarded_ends_no_graph() {
    let _simulated = testkit::simulated_runtime();
    check("is_available", |_| Ok(cuda_api::is_available()));
    check("get_device_properties", |_| Ok(cuda_api::get_device_properties(None)?));
    check("get_device_capability", |_| Ok(cuda_api::get_device_capability(None)?));
    check("device_count", |_| Ok(cuda_api::device_count()));
    check("current_device", |_| Ok(cuda_api::current_device()?));
    check("is_initialized", |_| Ok(cuda_api::is_initialized()));
    check("current_stream", |_| Ok(cuda_api::current_stream(None)?));
    check("torch.is_autocast_enabled", |_| torch::is_autocast_enabled("cuda"));
    check("torch.are_deterministic_algorithms_enabled", |_| Ok(torch::are_deterministic_algorithms_enabled()));
    check("torch.get_float32_matmul_precision", |_| Ok(torch::get_float32_matmul_precision()));
    check("flash_sdp_enabled", |_| Ok(cuda_api::backends::cuda::flash_sdp_enabled()));
}

/// Takes memory from a new pool for no longer than nothing is asked for.
fn in_route(begin: impl Fn(PoolId) -> cuda_api::Result<()>) -> Result<()> {
    let pool = cuda_api::graph_pool_handle();
    begin(pool)?;
    cuda_api::end_allocate_to_pool(None, pool)?;
    Ok(cuda_api::release_pool(None, pool)?)
}

#[test]
fn nodes_end_no_graph() {
    let _simulated = testkit::simulated_runtime();
    check("stream", |x| {
        let side = Stream::new(None, 0)?;
        let _on = cuda_api::stream(&side);
        x.size(0)
    });
    check("device", |_| Ok(cuda_api::device(0)?));
    check("_sleep", |_| Ok(cuda_api::sleep(10)?));
    check("mm", |x| torch::mm(&x.unsqueeze(0)?, &x.unsqueeze(1)?));
    check("torch.autocast", |x| {
        let _region = amp::autocast("cuda", torch::float16)?;
        x.add(1)
    });
    let side = Stream::new(None, 0).unwrap();
    check("Stream.record_event", |_| Ok(cuda_api::current_stream(None)?.record_event()?));
    check("Event.record", |_| Ok(Event::new(EventOptions::default()).record(None)?));
    check("Event.wait", |_| Ok(Event::new(EventOptions::default()).wait(None)?));
    check("Stream.wait_event", |_| {
        let stream = cuda_api::current_stream(None)?;
        Ok(stream.wait_event(&stream.record_event()?)?)
    });
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    check("use_mem_pool", move |_| Ok(cuda_api::use_mem_pool(&pool, None).map(drop)?));
    check("_cuda_beginAllocateToPool", |_| in_route(|pool| cuda_api::begin_allocate_to_pool(None, pool)));
    check("_cuda_beginAllocateCurrentThreadToPool", |_| {
        in_route(|pool| cuda_api::begin_allocate_current_thread_to_pool(None, pool))
    });
    check("_cuda_beginAllocateCurrentStreamToPool", |_| {
        in_route(|pool| cuda_api::begin_allocate_current_stream_to_pool(None, pool))
    });
    check("_cuda_endAllocateToPool", |_| in_route(|pool| cuda_api::begin_allocate_to_pool(None, pool)));
    check("Stream.wait_stream", move |_| Ok(side.wait_stream(&cuda_api::current_stream(None)?)?));
}

#[test]
fn what_asks_or_changes_state_ends_the_graph() {
    let _simulated = testkit::simulated_runtime();
    check("get_rng_state", |_| cuda_api::get_rng_state(None));
    check("set_rng_state", |_| cuda_api::set_rng_state(&cuda_api::get_rng_state(None)?, None));
    check("manual_seed", |_| cuda_api::manual_seed(3));
    check("initial_seed", |_| cuda_api::initial_seed());
    check("set_device", |_| Ok(cuda_api::set_device(0)?));
    check("synchronize", |_| Ok(cuda_api::synchronize(None)?));
    check("memory_stats", |_| Ok(cuda_api::memory_stats(None)?));
    check("memory_allocated", |_| Ok(cuda_api::memory_allocated(None)?));
    check("max_memory_allocated", |_| Ok(cuda_api::max_memory_allocated(None)?));
    check("memory_snapshot", |_| Ok(cuda_api::memory_snapshot(None)?));
    check("mem_get_info", |_| Ok(cuda_api::mem_get_info(None)?));
    check("empty_cache", |_| Ok(cuda_api::empty_cache()?));
    check("reset_peak_memory_stats", |_| Ok(cuda_api::reset_peak_memory_stats(None)?));
    check("Stream.query", |_| Ok(cuda_api::current_stream(None)?.query()?));
    check("Stream.synchronize", |_| Ok(cuda_api::current_stream(None)?.synchronize()?));
    check("Event.query", |_| Ok(Event::new(EventOptions::default()).query()?));
    check("Event.synchronize", |_| Ok(Event::new(EventOptions::default()).synchronize()?));
}

#[test]
fn values_addresses_and_memory_of_ones_own_end_the_graph() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert_eq!(breaks(|x| x.max()?.item())?, ["values are read"]);
    assert_eq!(breaks(|x| x.to_vec::<f32>())?, ["values are read"]);
    assert!(!breaks(|x| Ok(x.data_ptr()))?.is_empty());
    assert_eq!(breaks(|_| Ok(DeviceBuffer::new(64, None)?.fill(.., 1, None)?))?, ["memory is filled"]);
    Ok(())
}

#[test]
fn a_setting_that_is_left_changed_is_changed_by_each_call() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0)?;
    let main = cuda_api::current_stream(None)?;
    let compiled = {
        let side = side.clone();
        torch::compile(move |x: &[Tensor]| {
            cuda_api::set_stream(&side)?;
            Ok(vec![x[0].clone()])
        })
    };
    let x = torch::ones(&[4], torch::float32, "cuda")?;
    for call in 0..4 {
        cuda_api::set_stream(&main)?;
        compiled.call(&[&x])?;
        assert_eq!(cuda_api::current_stream(None)?.cuda_stream(), side.cuda_stream(), "call {call}");
    }
    cuda_api::set_stream(&main)?;
    let report = compiled.report();
    assert!(report.programs[0].breaks[0].cause.starts_with("the function leaves a setting changed"), "{report}");
    Ok(())
}

/// Whether the memory of a tensor is of a pool.
fn is_of(pool: PoolId, tensor: &Tensor) -> bool {
    let address = tensor.data_ptr();
    let segments = cuda_api::memory_snapshot(Some(pool)).unwrap();
    segments.iter().flat_map(|segment| &segment.blocks).any(|block| block.address == address)
}

#[test]
fn results_between_begin_and_end_come_from_the_pool_in_each_call() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let x = torch::full(&[64], 3, torch::float32, "cuda")?;
    let begins: [fn(PoolId) -> cuda_api::Result<()>; 3] = [
        |pool| cuda_api::begin_allocate_to_pool(None, pool),
        |pool| cuda_api::begin_allocate_current_thread_to_pool(None, pool),
        |pool| cuda_api::begin_allocate_current_stream_to_pool(None, pool),
    ];
    for begin in begins {
        let pool = cuda_api::graph_pool_handle();
        let compiled = torch::compile(move |x: &[Tensor]| {
            let before = x[0].add(1)?;
            begin(pool)?;
            let inside = before.mul(2)?.flip(&[0])?;
            cuda_api::end_allocate_to_pool(None, pool)?;
            Ok(vec![inside.clone(), inside.add(&before)?.flip(&[0])?])
        });
        for call in 0..5 {
            let made = compiled.call(&[&x])?;
            assert_eq!((is_of(pool, &made[0]), is_of(pool, &made[1])), (true, false), "call {call}");
            assert_eq!([made[0].to_vec::<f32>()?, made[1].to_vec::<f32>()?], [[8.0; 64], [12.0; 64]], "call {call}");
            let other = torch::ones(&[64], torch::float32, "cuda")?;
            assert!(!is_of(pool, &other), "call {call}");
        }
        let report = compiled.report();
        assert_eq!((report.programs[0].called, report.programs[0].breaks.len()), (None, 0), "{report}");
        // The two traces have begun to use the pool, and nobody else has.
        cuda_api::release_pool(None, pool)?;
        cuda_api::release_pool(None, pool)?;
        assert!(cuda_api::release_pool(None, pool).is_err());
    }
    Ok(())
}

#[test]
fn a_pool_that_is_begun_or_ended_on_one_side_of_a_call_is_no_node() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let x = torch::full(&[64], 3, torch::float32, "cuda")?;
    let pool = cuda_api::graph_pool_handle();
    let begins = torch::compile(move |x: &[Tensor]| {
        cuda_api::begin_allocate_to_pool(None, pool)?;
        Ok(vec![x[0].add(1)?])
    });
    let ends = torch::compile(move |x: &[Tensor]| {
        let made = x[0].add(1)?;
        cuda_api::end_allocate_to_pool(None, pool)?;
        Ok(vec![made])
    });
    for call in 0..4 {
        assert!(is_of(pool, &begins.call(&[&x])?[0]), "call {call}");
        assert!(is_of(pool, &torch::ones(&[64], torch::float32, "cuda")?), "call {call}");
        assert!(is_of(pool, &ends.call(&[&x])?[0]), "call {call}");
        assert!(!is_of(pool, &torch::ones(&[64], torch::float32, "cuda")?), "call {call}");
    }
    let cause = |compiled: &cuda_api::compiler::Compiled| compiled.report().programs[0].breaks[0].cause;
    assert!(cause(&begins).starts_with("the function leaves a setting changed"));
    assert_eq!(cause(&ends), "memory comes from another pool");
    Ok(())
}
