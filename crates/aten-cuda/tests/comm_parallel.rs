//! What data-parallel programs do: values of Rust cut up, replicated, computed on several devices at once and joined. The
//! machine is that of the process, so that threads of the library find it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use aten_cuda::autocast::{AutocastState, autocast};
use aten_cuda::comm::{self, Gatherable, Replicable, Scatterable};
use aten_cuda::{DType, Result, Tensor};
use c10_core::{Runtime, Stream};
use num_complex::Complex32;
use testkit::{Config, Machine};

/// The process's machine, with three devices.
fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| testkit::make_default(Config::default().devices(3).seed(4)).expect("it is the first one"))
}

fn ramp(count: i64, device: &str) -> Result<Tensor> {
    Tensor::arange(0, count, 1, Some(DType::F32), device)
}

#[test]
fn nested_values_are_cut_up_and_joined() -> Result<()> {
    machine();
    let value = (
        vec![ramp(6, "cuda:0")?, ramp(6, "cpu")?.mul(10)?],
        BTreeMap::from([("x".to_owned(), (ramp(6, "cuda:1")?, 7_i64))]),
        Some(ramp(6, "cuda:2")?),
        "same".to_owned(),
    );
    let parts = value.scatter_to(&[0, 1, 2], 0)?;
    assert_eq!(parts.len(), 3);
    assert_eq!((parts[2].0[1].to_vec::<f32>()?, parts[2].0[1].device().index), (vec![40.0, 50.0], Some(2)));
    assert_eq!((parts[1].1["x"].0.to_vec::<f32>()?, parts[1].1["x"].1), (vec![2.0, 3.0], 7));
    assert_eq!(parts[0].3, "same");
    let joined = Gatherable::gather_from(parts, Some(1), 0)?;
    let (lists, map, option, text): (Vec<Tensor>, BTreeMap<String, (Tensor, i64)>, Option<Tensor>, String) = joined;
    assert_eq!(lists[1].to_vec::<f32>()?, value.0[1].to_vec::<f32>()?);
    assert_eq!((map["x"].0.to_vec::<f32>()?, map["x"].1), (value.1["x"].0.to_vec::<f32>()?, 7));
    assert_eq!(option.map(|tensor| tensor.device().index), Some(Some(1)));
    assert_eq!(text, "same");
    Ok(())
}

#[test]
fn fewer_chunks_make_fewer_values() -> Result<()> {
    machine();
    // Two rows for three devices; the list without tensors goes to all.
    let parts = (ramp(2, "cuda:0")?, Vec::<Tensor>::new(), 1.5_f64).scatter_to(&[0, 1, 2], 0)?;
    assert_eq!(parts.len(), 2);
    assert_eq!(Option::<Tensor>::None.scatter_to(&[0, 1], 0)?.len(), 2);
    assert_eq!(BTreeMap::<u8, Tensor>::new().scatter_to(&[0, 1], 0)?.len(), 2);
    Ok(())
}

#[test]
fn complex_tensors_stay_complex_and_numbers_become_a_list() -> Result<()> {
    machine();
    let source = Tensor::from_slice(&[Complex32::new(1.0, 2.0), Complex32::new(3.0, 4.0)], &[2])?.cuda(0)?;
    let parts = source.scatter_to(&[0, 1], 0)?;
    assert_eq!(parts[1].to_vec::<Complex32>()?, [Complex32::new(3.0, 4.0)]);
    assert_eq!(Tensor::gather_from(parts, Some(0), 0)?.to_vec::<Complex32>()?, source.to_vec::<Complex32>()?);
    let numbers = vec![Tensor::full(&[], 1, DType::F32, "cuda:0")?, Tensor::full(&[], 2, DType::F32, "cuda:1")?];
    assert_eq!(Tensor::gather_from(numbers, Some(-1), 0)?.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn uneven_values_are_refused() -> Result<()> {
    machine();
    let tensor = || ramp(2, "cuda:0");
    let lists = vec![vec![tensor()?], vec![]];
    let text = |result: Result<()>| result.err().map(|error| error.to_string());
    let lists = text(Vec::gather_from(lists, None, 0).map(drop));
    assert_eq!(lists.as_deref(), Some("All lists must have the same number of elements"));
    let maps = vec![BTreeMap::from([(1, tensor()?)]), BTreeMap::from([(2, tensor()?)])];
    let maps = text(BTreeMap::gather_from(maps, None, 0).map(drop));
    assert_eq!(maps.as_deref(), Some("All dicts must have the same number of elements"));
    assert!(Option::gather_from(vec![Some(tensor()?), None], None, 0).is_err());
    assert!(Tensor::gather_from(Vec::new(), None, 0).is_err());
    Ok(())
}

/// Two layers.
struct Model {
    first: Tensor,
    second: Tensor,
}

impl Replicable for Model {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![&self.first, &self.second]
    }

    fn with_tensors(&self, tensors: Vec<Tensor>) -> Self {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("there are two");
        Self { first: next(), second: next() }
    }
}

#[test]
fn replicas_compute_at_once_what_one_device_computes() -> Result<()> {
    machine();
    let model = Model { first: ramp(6, "cuda:0")?.view(&[2, 3])?, second: ramp(3, "cuda:0")?.view(&[3, 1])? };
    let forward = |model: &Model, input: Tensor| input.matmul(&model.first)?.relu()?.matmul(&model.second);
    let input = ramp(14, "cuda:0")?.view(&[7, 2])?;
    let expected = forward(&model, input.clone())?.to_vec::<f32>()?;
    let replicas = comm::replicate(&model, &[0, 1, 2])?;
    assert_eq!(replicas[0].first.data_ptr(), model.first.data_ptr());
    assert!(replicas.iter().zip(0..).all(|(replica, device)| replica.second.device().index == Some(device)));
    for _ in 0..5 {
        let parts = input.scatter_to(&[0, 1, 2], 0)?;
        let outputs = comm::parallel_apply(&replicas, parts, &[0, 1, 2], forward)?;
        assert_eq!(Tensor::gather_from(outputs, Some(2), 0)?.to_vec::<f32>()?, expected);
    }
    Ok(())
}

#[test]
fn threads_have_the_callers_device_stream_and_autocast() -> Result<()> {
    machine();
    let stream = Stream::new(1, 0)?;
    let (_current, _region) = (stream.guard(), autocast("cuda", DType::BF16)?);
    let seen = comm::parallel_apply(&[(), ()], vec![0, 1], &[0, 1], |(), at| {
        let runtime = Runtime::current();
        let device = runtime.current_device()?;
        Ok((at, device, runtime.streams().current(device)?, AutocastState::current().cuda))
    })?;
    assert_eq!((seen[0].0, seen[0].1, seen[0].3), (0, 0, Some(DType::BF16)));
    assert_eq!((seen[1].0, seen[1].1, seen[1].3), (1, 1, Some(DType::BF16)));
    assert!(seen[1].2 == stream && seen[0].2.is_default());
    // A single replica is computed on this thread.
    let here = std::thread::current().id();
    assert_eq!(comm::parallel_apply(&[()], vec![()], &[2], |(), ()| Ok(std::thread::current().id()))?, [here]);
    Ok(())
}

#[test]
fn the_first_error_in_the_order_of_the_replicas_is_told() -> Result<()> {
    machine();
    let run = |(): &(), at: i64| -> Result<()> {
        if at == 0 { Ok(()) } else { Tensor::zeros(&[-at], DType::F32, "cpu").map(drop) }
    };
    let error = comm::parallel_apply(&[(), (), ()], vec![0, 2, 1], &[0, 1, 2], run).expect_err("two of them fail");
    assert!(error.to_string().contains("dimension -2"), "{error}");
    let error = comm::parallel_apply(&[()], vec![0, 1], &[0], run).expect_err("there are too many inputs");
    assert_eq!(error.to_string(), "Expected as many inputs and devices as modules (1), but got 2 inputs and 1 devices");
    Ok(())
}

#[test]
fn scatter_gather_runs_each_part_on_its_device() -> Result<()> {
    machine();
    let input = (ramp(7, "cuda:0")?, 3_i64);
    let mut devices = Vec::new();
    let result: Tensor = comm::scatter_gather(&input, &[2, 0, 1], Some(0), 0, |(part, factor), device| {
        devices.push((device, Runtime::current().current_device()?));
        assert_eq!(part.device().index, Some(device));
        part.mul(*factor)
    })?;
    assert_eq!(devices, [(2, 2), (0, 0), (1, 1)]);
    assert_eq!(result.to_vec::<f32>()?, ramp(7, "cpu")?.mul(3)?.to_vec::<f32>()?);
    Ok(())
}
