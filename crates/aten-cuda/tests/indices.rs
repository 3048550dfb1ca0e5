//! Indices out of range and other values that kernels refuse: an error at once on the host, and on a device by the next
//! call that waits for it.

mod common;

use aten_cuda::{CrossEntropy, DType, Error, RandomError, Result, Tensor, TensorError, synchronize};
use c10_core::{CUDAGraph, CaptureMode, Event, Runtime, Stream, SyncDebugMode};
use common::assert_same;

fn out_of_range(outcome: Result<impl Sized>) -> Option<(&'static str, i64, i64, i64)> {
    match outcome {
        Err(Error::Tensor(TensorError::IndexOutOfRange { operation, element, index, size, .. })) => {
            Some((operation, element, index, size))
        }
        _ => None,
    }
}

#[test]
fn the_host_refuses_at_once() -> Result<()> {
    let a = Tensor::zeros(&[3, 4], DType::F32, "cpu")?;
    let index = Tensor::from_slice(&[0_i64, 2, 7], &[3])?;
    assert_eq!(out_of_range(a.index_select(0, &index)), Some(("index_select", 2, 7, 3)));
    assert_eq!(out_of_range(a.embedding(&index)), Some(("embedding", 2, 7, 3)));
    // Other texts of torch's are of the same error.
    assert_eq!(out_of_range(a.index_select(1, &index)), Some(("index_select", 2, 7, 4)));
    assert_eq!(out_of_range(a.index_add(0, &index, &a, 1)), Some(("index_add", 2, 7, 3)));
    let last = a.index_add(1, &index, &Tensor::ones(&[3, 3], DType::F32, "cpu")?, 1);
    assert_eq!(out_of_range(last), Some(("index_add", 2, 7, 4)));
    assert_eq!(out_of_range(a.gather(1, &Tensor::from_slice(&[-1_i64], &[1, 1])?)), Some(("gather", 0, -1, 4)));
    Ok(())
}

#[test]
fn a_device_reports_with_the_next_values() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::ones(&[3, 4], DType::F32, "cuda")?;
    let index = Tensor::from_slice(&[0_i64, 2, 7], &[3])?.cuda(None)?;
    let picked = a.index_select(0, &index)?;
    assert_eq!(out_of_range(picked.to_bytes()), Some(("index_select", 2, 7, 3)));
    // The report is gone, the device works on, and what was left out is zero.
    assert_eq!(picked.select(0, 2)?.to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(picked.select(0, 1)?.to_vec::<f32>()?, [1.0; 4]);
    Ok(())
}

#[test]
fn a_dimension_without_elements_has_no_index() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (a, index) = (Tensor::zeros(&[0, 2], DType::F32, "cuda")?, Tensor::zeros(&[1], DType::I64, "cuda")?);
    let refused = a.index_add(0, &index, &Tensor::ones(&[1, 2], DType::F32, "cuda")?, 1).unwrap_err();
    assert_eq!(refused.to_string(), "index is out of bounds for dimension with size 0");
    // Without elements there is nothing to add, and no index is looked at.
    let none = Tensor::zeros(&[3, 0], DType::F32, "cuda")?;
    let added = none.index_add(0, &index.add(7)?, &Tensor::zeros(&[1, 0], DType::F32, "cuda")?, 1)?;
    assert_eq!(added.sizes(), [3, 0]);
    Ok(())
}

#[test]
fn writes_out_of_range_are_left_out() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[5], DType::I32, "cuda")?;
    let one = |index: i64| Tensor::from_slice(&[index], &[1])?.cuda(None);
    let source = Tensor::ones(&[1], DType::I32, "cuda")?;
    a.index_add_(0, &one(5)?, &source, 1)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_add", 0, 5, 5)));
    a.index_copy_(0, &one(-1)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_copy", 0, -1, 5)));
    a.scatter_(0, &one(i64::MAX)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("scatter", 0, i64::MAX, 5)));
    a.scatter_add_(0, &one(i64::MIN)?, &source)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("scatter_add", 0, i64::MIN, 5)));
    a.index_put_(&[Some(&one(-5)?)], &source, false)?;
    a.index_put_(&[Some(&one(-6)?)], &source, true)?;
    assert_eq!(out_of_range(a.to_bytes()), Some(("index_put", 0, -6, 5)));
    assert_eq!(a.to_vec::<i32>()?[1..], [0; 4]);
    Ok(())
}

#[test]
fn the_first_of_many_is_reported() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[4], DType::F64, "cuda")?;
    let bad = Tensor::full(&[1000], 9, DType::I64, "cuda")?;
    let good = Tensor::zeros(&[1000], DType::I64, "cuda")?;
    a.gather(0, &bad)?;
    // A copy back of other values waits, and tells of the bad ones.
    let (_, element, index, size) = out_of_range(good.to_bytes()).expect("the report lies there");
    assert_eq!((index, size), (9, 4));
    assert!((0..1000).contains(&element));
    assert_eq!(a.gather(0, &good)?.to_vec::<f64>()?, [0.0; 1000]);
    a.gather(0, &bad)?;
    assert_eq!(out_of_range(synchronize(None)).map(|(operation, ..)| operation), Some("gather"));
    synchronize(None)
}

#[test]
fn whatever_waits_for_the_device_tells() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::zeros(&[4], DType::F64, "cuda")?;
    let bad = Tensor::full(&[2], 9, DType::I64, "cuda")?;
    let current = Runtime::with_current(|runtime| runtime.streams().current(0))?;
    let side = Stream::new(None, 0)?;
    let event = Event::new(c10_core::EventOptions::default());
    let waits: [(&str, &dyn Fn() -> c10_core::Result<()>); 5] = [
        ("stream", &|| current.synchronize()),
        ("event", &|| event.record(None).and_then(|()| event.synchronize())),
        ("device", &|| Runtime::with_current(|runtime| runtime.synchronize(0))),
        ("another stream", &|| side.wait_stream(&current).and_then(|()| side.synchronize())),
        ("a copy to the device", &|| a.storage().buffer().map_or(Ok(()), |buffer| buffer.copy_from_slice(0, &[0; 8]))),
    ];
    for (name, wait) in waits {
        a.gather(0, &bad)?;
        let Err(c10_core::Error::DeviceAssertion(told)) = wait() else { panic!("{name} tells nothing") };
        assert_eq!((told.operation, told.value.as_str(), told.device), ("gather", "9", 0), "{name}");
        let text = told.to_string();
        assert!(text.starts_with("gather(): index 9 is out of bounds for dimension with size 4 (element"), "{text}");
        assert_eq!(
            out_of_range(Err::<(), _>(c10_core::Error::DeviceAssertion(told).into())).map(|told| told.2),
            Some(9)
        );
        wait()?;
    }
    Ok(())
}

#[test]
fn replays_report_what_their_inputs_hold() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let a = Tensor::arange(0, 4, 1, None, "cuda")?;
    let index = Tensor::zeros(&[3], DType::I64, "cuda")?;
    let p = Tensor::ones(&[2, 3], DType::F32, "cuda")?;
    // What was not used yet is loaded before the capture.
    a.index_select(0, &index)?;
    p.multinomial(2, true, None)?;
    let stream = Stream::new(None, 0)?;
    let mut graph = CUDAGraph::new();
    let mut made = None;
    graph.record(&stream, None, CaptureMode::Global, |_| {
        made = Some((a.index_select(0, &index)?, p.multinomial(2, true, None)?));
        Ok::<(), Error>(())
    })?;
    graph.replay()?;
    synchronize(None)?;
    index.fill_(4)?;
    graph.replay()?;
    assert_eq!(
        out_of_range(synchronize(None)).map(|(operation, _, index, size)| (operation, index, size)),
        Some(("index_select", 4, 4))
    );
    index.fill_(1)?;
    p.fill_(-1)?;
    graph.replay()?;
    let refused = synchronize(None);
    assert!(matches!(
        refused,
        Err(Error::Random(RandomError::Probability { operation: "multinomial", value: -1.0, .. }))
    ));
    p.fill_(1)?;
    graph.replay()?;
    synchronize(None)?;
    let (picked, drawn) = made.expect("the capture ran");
    assert_eq!(picked.to_vec::<i64>()?, [1; 3]);
    assert!(drawn.to_vec::<i64>()?.iter().all(|place| (0..3).contains(place)));
    Ok(())
}

#[test]
fn probabilities_and_targets_out_of_range_are_named() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let p = Tensor::from_slice(&[0.0_f32, 1.0, 1.5, 0.5], &[4])?.cuda(None)?;
    let drawn = p.bernoulli(None)?;
    let refused = drawn.to_vec::<f32>();
    let text = "bernoulli_(): probability 1.5 is out of range (element 2 of the probabilities)";
    assert_eq!(refused.unwrap_err().to_string(), text);
    assert_eq!(drawn.to_vec::<f32>()?[..2], [0.0, 1.0], "the others are drawn, and the device works on");
    for (wrong, name) in [(-0.5_f32, "-0.5"), (f32::INFINITY, "inf"), (f32::NAN, "NaN")] {
        let p = Tensor::from_slice(&[1.0, 1.0, 1.0, wrong], &[2, 2])?.cuda(None)?;
        for samples in [1, 2] {
            for replacement in [false, true] {
                let text = p.multinomial(samples, replacement, None).unwrap_err().to_string();
                let expected =
                    format!("multinomial(): probability {name} is out of range (element 3 of the probabilities)");
                assert!(text.ends_with(&expected), "{text}");
            }
        }
    }
    let zeros = Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 0.0], &[2, 2])?.cuda(None)?;
    let refused = zeros.multinomial(1, false, None);
    assert!(matches!(refused, Err(Error::Random(RandomError::SumOfProbabilities { row: 1 }))));

    let (logits, target) = (Tensor::zeros(&[3, 4], DType::F32, "cpu")?, Tensor::from_slice(&[1_i64, -100, 4], &[3])?);
    let outside = |refused: Error| {
        let Error::Tensor(TensorError::TargetOutOfRange { element, class, classes }) = refused else { return None };
        Some((element, class, classes))
    };
    let options = CrossEntropy::default();
    assert_eq!(outside(logits.cross_entropy(&target, &options).unwrap_err()), Some((2, 4, 4)));
    let loss = logits.cuda(None)?.cross_entropy(&target.cuda(None)?, &options)?;
    let refused = loss.item().unwrap_err();
    let text = "Target 4 is out of bounds. cross_entropy() has 4 classes (element 2 of the target)";
    assert_eq!((refused.to_string().as_str(), outside(refused)), (text, Some((2, 4, 4))));
    assert!(loss.item()?.to_f64().is_nan());
    Ok(())
}

#[test]
fn indices_on_the_host_name_elements_on_the_device() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let plain = Tensor::arange(0, 12, 1, Some(DType::F32), "cpu")?.view(&[3, 4])?;
    let rows = Tensor::from_slice(&[2_i64, -3], &[2])?;
    let mask = Tensor::from_bools(&[true, false, true], &[3])?;
    let device = plain.cuda(None)?;
    for index in [&rows, &mask, &rows.pin_memory()?, &rows.to_dtype(DType::I32)?] {
        assert_same(&device.index(&[Some(index)])?.cpu()?, &plain.index(&[Some(index)])?);
        if index.dtype() != DType::Bool {
            assert_same(&device.index(&[None, Some(index)])?.cpu()?, &plain.index(&[None, Some(index)])?);
        }
        let (there, here) = (device.copy()?, plain.copy()?);
        let values = Tensor::full(&[1, 4], 9, DType::F32, "cpu")?;
        there.index_put_(&[Some(index)], &values.cuda(None)?, true)?;
        here.index_put_(&[Some(index)], &values, true)?;
        // A number on the host, for both.
        let number = Tensor::full(&[], 5, DType::F32, "cpu")?;
        there.index_put_(&[Some(index), Some(&rows.narrow(0, 0, 1)?)], &number, false)?;
        here.index_put_(&[Some(index), Some(&rows.narrow(0, 0, 1)?)], &number, false)?;
        assert_same(&there.cpu()?, &here);
    }
    // One on another device than a tensor of the host is refused, in torch's words.
    let refused = plain.index(&[Some(&rows.cuda(None)?)]).unwrap_err().to_string();
    assert_eq!(refused, "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
    // Values with dimensions have to be there.
    assert!(device.index_put_(&[Some(&rows)], &plain.narrow(0, 0, 2)?, false).is_err());
    Ok(())
}

#[test]
fn masks_with_values_on_the_device_do_not_wait() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let plain = Tensor::arange(0, 12, 1, Some(DType::F32), "cpu")?.view(&[3, 4])?;
    let mask = plain.remainder(2)?.eq(0)?;
    let source = plain.add(100)?.flatten()?;
    let (device, there) = (plain.cuda(None)?, mask.cuda(None)?);
    let (long, short) = (source.cuda(None)?, source.narrow(0, 0, 6)?.cuda(None)?);
    let value = Tensor::full(&[], 7.5, DType::F64, "cuda")?;
    let debug = |mode| Runtime::with_current(|runtime| runtime.sync_debug().set(mode));
    let filled = Tensor::zeros(&[3, 4], DType::F32, "cuda")?;
    let run = || -> Result<[Tensor; 4]> {
        device.masked_fill_out(&there, &value, &filled)?;
        Ok([
            device.masked_fill(&there, &value)?,
            filled.copy()?,
            device.masked_scatter(&there, &long)?,
            device.masked_scatter(&there, &short)?,
        ])
    };
    let expected = [
        plain.masked_fill(&mask, 7.5)?,
        plain.masked_fill(&mask, 7.5)?,
        plain.masked_scatter(&mask, &source)?,
        plain.masked_scatter(&mask, &source)?,
    ];
    debug(SyncDebugMode::Error)?;
    let found = run()?;
    debug(SyncDebugMode::Default)?;
    for (found, expected) in found.iter().zip(&expected) {
        assert_same(&found.cpu()?, expected);
    }
    // Captured, and replayed with another mask and value.
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    let found = graph.capture(&stream, None, CaptureMode::Global, run)?;
    there.copy_(&mask.logical_not()?)?;
    value.fill_(3)?;
    graph.replay()?;
    synchronize(None)?;
    let mask = mask.logical_not()?;
    let expected = [plain.masked_fill(&mask, 3)?, plain.masked_fill(&mask, 3)?, plain.masked_scatter(&mask, &source)?];
    for (found, expected) in found.iter().zip(&expected) {
        assert_same(&found.cpu()?, expected);
    }
    Ok(())
}

#[test]
fn a_source_with_too_few_elements_is_told_by_the_device() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let text = "Number of elements of source < number of ones in mask";
    for device in ["cpu", "cuda"] {
        let zeros = Tensor::zeros(&[1000], DType::I64, device)?;
        let mask = Tensor::ones(&[1000], DType::Bool, device)?;
        for (count, is_enough) in [(0, false), (999, false), (1000, true), (2000, true)] {
            let source = Tensor::ones(&[count], DType::I64, device)?;
            let told = zeros.masked_scatter(&mask, &source).and_then(|made| synchronize(None).and(Ok(made)));
            match told {
                Ok(made) => assert!(is_enough && made.sum((), false, None)?.item()?.to_i64() == 1000, "{count}"),
                Err(error) => assert!(!is_enough && error.to_string().starts_with(text), "{count}: {error}"),
            }
        }
        // A mask that keeps nothing needs no source.
        let none = zeros.masked_scatter(&mask.logical_not()?, &Tensor::ones(&[0], DType::I64, device)?)?;
        synchronize(None)?;
        assert_eq!(none.sum((), false, None)?.item()?.to_i64(), 0);
    }
    Ok(())
}
