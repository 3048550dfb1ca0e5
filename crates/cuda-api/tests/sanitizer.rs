//! The stream sanitizer over tensor operations.

use std::sync::{Arc, Mutex};

use c10_core::{Runtime, TraceAccess, TraceEvent, TraceKind};
use cuda_api::sanitizer::{SanitizerAction, SanitizerOptions, enable_cuda_sanitizer};
use cuda_api::torch::Tensor;
use cuda_api::{Stream, torch};
use testkit::{Config, JournalEntry, KernelChecks, ReportKind, SimulatedRuntime, WorkKind};

/// What operations did to memory while `body` ran.
fn accesses(body: impl FnOnce() -> Result<(), torch::Error>) -> Vec<TraceAccess> {
    let seen: Arc<Mutex<Vec<TraceAccess>>> = Arc::default();
    let told = Arc::clone(&seen);
    let runtime = Runtime::current();
    let id = runtime.subscribe(TraceKind::Access.into(), move |event| {
        if let TraceEvent::Accessed(access) = *event {
            told.lock().expect("nobody panics").push(access);
        }
    });
    body().expect("the operations succeed");
    runtime.unsubscribe(id);
    seen.lock().expect("nobody panics").clone()
}

fn covers(access: &TraceAccess, tensor: &Tensor) -> bool {
    let start = tensor.data_ptr();
    access.address <= start && start + tensor.nbytes() as u64 <= access.address + access.size
}

/// Operations of every kind read what they are given and write what they return, and nothing else that is given.
#[test]
fn operations_tell_what_they_read_and_write() -> Result<(), Box<dyn std::error::Error>> {
    let _simulated = testkit::simulated_runtime();
    let a = torch::rand(&[64, 48], torch::float32, "cuda")?;
    let b = torch::rand(&[64, 48], torch::float32, "cuda")?;
    let wide = torch::rand(&[4, 4096], torch::float32, "cuda")?;
    let index = torch::zeros(&[64], torch::int64, "cuda")?;
    type Operation<'a> = (&'static str, Vec<&'a Tensor>, Box<dyn Fn() -> Result<Tensor, torch::Error> + 'a>);
    let operations: Vec<Operation<'_>> = vec![
        ("add", vec![&a, &b], Box::new(|| torch::add(&a, &b))),
        ("add, broadcast", vec![&a, &b], Box::new(|| torch::add(&a, &b.narrow(0, 0, 1)?))),
        ("relu", vec![&a], Box::new(|| a.relu())),
        ("sum", vec![&a], Box::new(|| a.sum(None, false, None))),
        ("sum of long rows", vec![&wide], Box::new(|| wide.sum(None, false, None))),
        ("softmax", vec![&a], Box::new(|| a.softmax(1, None))),
        ("cumsum", vec![&wide], Box::new(|| wide.cumsum(1, None))),
        ("transposed copy", vec![&a], Box::new(|| a.t()?.contiguous())),
        ("matmul", vec![&a, &b], Box::new(|| a.matmul(&b.t()?))),
        ("index_select", vec![&a, &index], Box::new(|| a.index_select(0, &index))),
        ("sort", vec![&a], Box::new(|| Ok(a.sort(1, false)?.0))),
        ("flip", vec![&a], Box::new(|| a.flip(&[0]))),
    ];
    for (name, inputs, operation) in operations {
        let mut made = None;
        let told = accesses(|| {
            made = Some(operation()?);
            Ok(())
        });
        let made = made.expect("it was made");
        let overlaps = |access: &&TraceAccess, tensor: &Tensor| {
            access.address < tensor.data_ptr() + tensor.nbytes() as u64
                && tensor.data_ptr() < access.address + access.size
        };
        assert!(
            told.iter().any(|access| access.is_write && covers(access, &made)),
            "{name} writes its result: {told:?}"
        );
        for input in inputs {
            let of_input: Vec<_> = told.iter().filter(|access| overlaps(access, input)).collect();
            assert!(!of_input.is_empty(), "{name} reads what it is given: {told:?}");
            assert!(of_input.iter().all(|access| !access.is_write), "{name} leaves what it is given: {of_input:?}");
        }
    }
    Ok(())
}

#[test]
fn an_operation_that_races_is_an_error_until_it_waits() -> Result<(), Box<dyn std::error::Error>> {
    let _simulated = testkit::simulated_runtime();
    let a = torch::ones(&[4, 2], torch::float32, "cuda")?;
    let other = Stream::new(None, 0)?;
    cuda_api::synchronize(None)?;
    let sanitizer = enable_cuda_sanitizer();
    let doubled = torch::add(&a, &a)?;
    let raced = cuda_api::with_stream(&other, || Ok(torch::add(&doubled, &a).err()))?;
    assert!(raced.is_some_and(|raced| raced.to_string().contains("detected 1 errors")));
    other.wait_stream(&cuda_api::default_stream(None)?)?;
    assert!(cuda_api::with_stream(&other, || Ok(torch::add(&doubled, &a).is_ok()))?);
    assert_eq!(sanitizer.count(), 1);
    Ok(())
}

/// Torch compares where tensors begin: halves of one tensor are two tensors, and parts that overlap are no race.
#[test]
fn views_are_compared_by_their_bytes_if_one_asks() -> Result<(), Box<dyn std::error::Error>> {
    let _simulated = testkit::simulated_runtime();
    let a = torch::ones(&[64], torch::float32, "cuda")?;
    let other = Stream::new(None, 0)?;
    cuda_api::synchronize(None)?;
    let collect = |options| SanitizerOptions { action: SanitizerAction::Collect, ..options };
    let by_tensors = Runtime::current().enable_sanitizer(collect(SanitizerOptions::default()));
    let by_ranges = Runtime::current().enable_sanitizer(collect(SanitizerOptions::ranges()));
    a.narrow(0, 0, 32)?.fill_(1.0)?;
    cuda_api::with_stream(&other, || {
        a.narrow(0, 32, 32).and_then(|half| half.fill_(2.0).map(drop)).expect("halves do not race");
        a.narrow(0, 24, 8).and_then(|part| part.fill_(3.0).map(drop)).expect("races are collected");
        Ok(())
    })?;
    assert_eq!(by_tensors.count(), 0);
    let races = by_ranges.take_errors();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].data_ptr, races[0].bytes), (a.data_ptr() + 24 * 4, Some(32)));
    Ok(())
}

/// A machine records the calls and work of every program, and reports only mistakes.
#[test]
fn a_machine_reports_what_is_wrong_and_tells_what_happened() -> Result<(), Box<dyn std::error::Error>> {
    let checks = KernelChecks { uninitialized: true, ..KernelChecks::default() };
    let simulated = SimulatedRuntime::new(Config::default().checks(checks));
    let machine = simulated.machine();
    machine.keep_journal();
    let ones = torch::ones(&[64], torch::float32, "cuda")?;
    assert_eq!(ones.add(1)?.to_vec::<f32>()?, [2.0; 64]);
    assert_eq!(machine.reports(), [], "nothing is wrong");
    assert!(machine.calls().iter().any(|(call, _, count)| call.starts_with("cuLaunchKernel") && *count > 0));
    let launches = |entry: &JournalEntry| matches!(entry, JournalEntry::Queued(work) if work.kind == WorkKind::Launch);
    assert!(machine.take_journal().iter().any(launches), "the journal has the work");
    let unwritten = torch::empty(&[64], torch::float32, "cuda")?;
    unwritten.add(1)?.to_vec::<f32>()?;
    let reports = machine.take_reports();
    assert!(reports.iter().any(|report| report.kind == ReportKind::UninitializedRead), "{reports:?}");
    Ok(())
}
