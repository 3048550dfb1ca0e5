//! Streams, events and pools of memory within compiled functions.

use c10_core::{Event, EventOptions, MemPool, MemPoolGuard, MemPoolOptions};

use super::*;

#[test]
fn streams_that_wait_for_each_other_stay_in_order() {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0).unwrap();
    let function = {
        let side = side.clone();
        move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let main = Runtime::current().streams().current(side.device_index())?;
            let made = x[0].mul(2)?;
            side.wait_stream(&main)?;
            let beside = {
                let _on = side.guard();
                made.add(1)?.relu()?
            };
            main.wait_stream(&side)?;
            Ok(vec![beside.add(&made)?])
        }
    };
    let x = numbers(&[100], 3);
    let expected = bits(&function(std::slice::from_ref(&x)).unwrap()[0]);
    let compiled = compile(function);
    for _ in 0..4 {
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), expected);
    }
    let report = compiled.report();
    assert_eq!((report.programs[0].breaks.len(), report.programs[0].called), (0, None), "{report}");
}

#[test]
fn events_order_streams_within_a_program() {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0).unwrap();
    let joined = Arc::new(Event::default());
    let function = {
        let (side, joined) = (side.clone(), Arc::clone(&joined));
        move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let main = Runtime::current().streams().current(side.device_index())?;
            let made = x[0].mul(2)?;
            // One that the function makes, and one that it has captured.
            side.wait_event(&main.record_event()?)?;
            let beside = {
                let _on = side.guard();
                let beside = made.add(1)?.relu()?;
                joined.record(None)?;
                beside
            };
            joined.wait(&main)?;
            Ok(vec![beside.add(&made)?])
        }
    };
    let compiled = same_without_breaks(function, &numbers(&[100], 3));
    let report = compiled.report();
    let names: Vec<&str> = report.programs[0].kernels.iter().flat_map(|kernel| kernel.operations.clone()).collect();
    let orders: Vec<&&str> = names.iter().filter(|name| name.contains("event")).collect();
    assert_eq!(orders, [&"record_event", &"wait_event", &"record_event", &"wait_event"], "{report}");
    assert!(joined.query().unwrap() || joined.synchronize().is_ok());
}

#[test]
fn a_program_measures_time_with_the_events_of_the_function() {
    let _simulated = testkit::simulated_runtime();
    let timing = || Arc::new(Event::new(EventOptions::TIMING));
    let (start, end, stream) = (timing(), timing(), Stream::new(None, 0).unwrap());
    let function = {
        let (start, end, stream) = (Arc::clone(&start), Arc::clone(&end), stream.clone());
        move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let _on = stream.guard();
            let before = x[0].mul(3)?;
            start.record(None)?;
            stream.sleep(1_000_000)?;
            let made = before.add(1)?;
            end.record(None)?;
            Ok(vec![made.mul(2)?])
        }
    };
    let x = numbers(&[50], 1);
    let compiled = same_without_breaks(function, &x);
    // What stands before an event is done before it, and not within a kernel behind it.
    assert_eq!(compiled.report().programs[0].kernels.len(), 6, "{}", compiled.report());
    for _ in 0..2 {
        compiled.call(&[&x]).unwrap();
        end.synchronize().unwrap();
        assert!(start.elapsed(&end).unwrap() > std::time::Duration::from_micros(100));
    }
}

#[test]
fn what_was_read_before_an_event_may_be_written_behind_it() {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0).unwrap();
    let compiled = compile(move |x: &[Tensor]| {
        let main = Runtime::current().streams().current(side.device_index())?;
        let read = x[0].mul(2)?;
        let event = main.record_event()?;
        let made = read.add(1)?;
        side.wait_event(&event)?;
        {
            let _on = side.guard();
            x[0].zero_()?;
        }
        main.wait_stream(&side)?;
        Ok(vec![made])
    });
    for call in 0..4 {
        let x = numbers(&[40], call);
        let expected = bits(&x.mul(2).unwrap().add(1).unwrap());
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), expected, "call {call}");
        assert_eq!(bits(&x), [0; 40]);
    }
    let report = compiled.report();
    let kernels = &report.programs[0].kernels;
    let at = |name: &str| kernels.iter().position(|kernel| kernel.operations.contains(&name)).unwrap();
    assert!(at("mul") < at("record_event"), "the operand is read before the event: {report}");
}

#[test]
fn an_event_that_a_function_keeps_has_it_called_each_time() {
    let _simulated = testkit::simulated_runtime();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let compiled = {
        let kept = Arc::clone(&kept);
        compile(move |x: &[Tensor]| {
            let made = x[0].add(1)?;
            let event = Runtime::current().streams().current(0)?.record_event()?;
            kept.lock().unwrap().push(event);
            Ok(vec![made])
        })
    };
    for _ in 0..4 {
        compiled.call(&[&numbers(&[10], 1)]).unwrap();
    }
    let kept = kept.lock().unwrap();
    assert!(kept.len() == 4 && kept.iter().all(Event::is_recorded), "each call has recorded its own");
    let handles: std::collections::BTreeSet<usize> = kept.iter().map(Event::cuda_event).collect();
    assert_eq!(handles.len(), 4);
    assert_eq!(compiled.report().programs[0].called, Some("it keeps events that it has made"));
}

#[test]
fn an_event_that_lives_across_a_break_is_that_of_its_call() {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0).unwrap();
    let asked = Arc::new(AtomicI64::new(0));
    let compiled = {
        let asked = Arc::clone(&asked);
        compile(move |x: &[Tensor]| {
            let main = Runtime::current().streams().current(side.device_index())?;
            let made = x[0].add(1)?;
            let event = main.record_event()?;
            // The first question ends the graph: the event is the one that was recorded.
            event.synchronize()?;
            asked.fetch_add(i64::from(event.is_recorded() && event.query()?), Ordering::Relaxed);
            side.wait_event(&event)?;
            let _on = side.guard();
            let made = made.mul(2)?;
            main.wait_stream(&side)?;
            Ok(vec![made])
        })
    };
    let x = numbers(&[10], 1);
    let expected = bits(&x.add(1).unwrap().mul(2).unwrap());
    for call in 0..4 {
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), expected, "call {call}");
        assert_eq!(asked.load(Ordering::Relaxed), call + 1);
    }
    let report = compiled.report();
    assert_eq!(report.programs[0].breaks[0].cause, "an event is waited for", "{report}");
}

#[test]
fn refused_records_and_waits_are_errors_of_the_call() {
    for call in ["cuEventRecordWithFlags", "cuStreamWaitEvent", "cuEventCreate"] {
        for occurrence in 1..6 {
            let simulated = SimulatedRuntime::new(Config::default());
            let side = Stream::new(None, 0).unwrap();
            let x = numbers(&[10], 1);
            let expected = bits(&x.add(1).unwrap());
            let compiled = compile(move |x: &[Tensor]| {
                let main = Runtime::current().streams().current(side.device_index())?;
                let made = x[0].add(1)?;
                side.wait_event(&main.record_event()?)?;
                main.wait_event(&side.record_event()?)?;
                Ok(vec![made])
            });
            simulated.machine().inject(Fault { call, occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
            for _ in 0..4 {
                match compiled.call(&[&x]) {
                    Ok(made) => assert_eq!(bits(&made[0]), expected, "{call} {occurrence}"),
                    Err(error) => assert!(error.to_string().contains("out of memory"), "{call} {occurrence}: {error}"),
                }
            }
        }
    }
}

#[test]
fn memory_that_a_function_takes_from_a_pool_comes_from_there() {
    let _simulated = testkit::simulated_runtime();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let function = {
        let pool = pool.clone();
        move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let outside = x[0].mul(2)?;
            let runtime = Runtime::current();
            let guard = runtime.mem_pools().enter(&pool, 0)?;
            let inside = outside.add(1)?;
            drop(guard);
            Ok(vec![inside, outside.softmax(-1, None)?])
        }
    };
    let holds = |tensor: &Tensor| {
        let blocks = pool.snapshot().into_iter().flat_map(|segment| segment.blocks);
        blocks.into_iter().any(|block| block.address == tensor.data_ptr())
    };
    let x = numbers(&[300], 1);
    let expected: Vec<Vec<u32>> = function(std::slice::from_ref(&x)).unwrap().iter().map(bits).collect();
    let compiled = compile(function);
    for call in 0..4 {
        let made = compiled.call(&[&x]).unwrap();
        assert_eq!(made.iter().map(bits).collect::<Vec<_>>(), expected, "call {call}");
        assert_eq!((holds(&made[0]), holds(&made[1])), (true, false), "call {call}");
    }
    let report = compiled.report();
    assert_eq!((report.programs[0].breaks.len(), report.programs[0].called), (0, None), "{report}");
}

#[test]
fn a_break_within_a_pool_leaves_each_result_where_it_was_asked_for() {
    let _simulated = testkit::simulated_runtime();
    let (first, second) =
        (MemPool::new(MemPoolOptions::default()).unwrap(), MemPool::new(MemPoolOptions::default()).unwrap());
    let compiled = {
        let (first, second) = (first.clone(), second.clone());
        compile(move |x: &[Tensor]| {
            let runtime = Runtime::current();
            let outside = x[0].mul(2)?;
            let _first = runtime.mem_pools().enter(&first, 0)?;
            let in_first = x[0].add(1)?;
            let in_second = {
                let _second = runtime.mem_pools().enter(&second, 0)?;
                let made = x[0].sub(1)?;
                assert!(made.max()?.item()?.to_f64() > 0.0);
                made
            };
            let behind = in_second.mul(3)?;
            Ok(vec![outside, in_first, in_second, behind])
        })
    };
    let holds = |pool: &MemPool, tensor: &Tensor| {
        let blocks = pool.snapshot().into_iter().flat_map(|segment| segment.blocks);
        blocks.into_iter().any(|block| block.address == tensor.data_ptr())
    };
    for _ in 0..3 {
        let made = compiled.call(&[&numbers(&[300], 1)]).unwrap();
        let places: Vec<(bool, bool)> = made.iter().map(|made| (holds(&first, made), holds(&second, made))).collect();
        assert_eq!(places, [(false, false), (true, false), (false, true), (true, false)]);
    }
    assert_eq!((first.use_count(), second.use_count()), (1, 1), "no route is left open");
}

#[test]
fn a_pool_that_stays_entered_has_the_function_called_each_time() {
    let _simulated = testkit::simulated_runtime();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    thread_local! {
        static KEPT: std::cell::RefCell<Option<MemPoolGuard>> = const { std::cell::RefCell::new(None) };
    }
    let compiled = compile(move |x: &[Tensor]| {
        KEPT.set(Some(Runtime::current().mem_pools().enter(&pool, 0)?));
        Ok(vec![x[0].add(1)?])
    });
    for _ in 0..3 {
        compiled.call(&[&numbers(&[10], 1)]).unwrap();
        assert!(KEPT.take().is_some());
    }
    assert_eq!(compiled.report().programs[0].called, Some("its graph breaks"));
}

#[test]
fn calls_within_a_pool_or_a_region_of_autocast_are_those_of_the_function_there() {
    let _simulated = testkit::simulated_runtime();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let holds = |tensor: &Tensor| {
        let blocks = pool.snapshot().into_iter().flat_map(|segment| segment.blocks);
        blocks.into_iter().any(|block| block.address == tensor.data_ptr())
    };
    let function: Function = |x| Ok(vec![x[0].mm(&x[1])?.softmax(-1, None)?]);
    let compiled = compile(function);
    let (x, y) = (numbers(&[20, 30], 1), numbers(&[30, 20], 2));
    let same = |made: &Tensor| {
        let expected = function(&[x.clone(), y.clone()]).unwrap().remove(0);
        assert_eq!((made.dtype(), bits(made)), (expected.dtype(), bits(&expected)));
    };
    for call in 0..4 {
        // The first call of all is one within the pool.
        let within = {
            let _within = Runtime::current().mem_pools().enter(&pool, 0).unwrap();
            compiled.call(&[&x, &y]).unwrap().remove(0)
        };
        let outside = compiled.call(&[&x, &y]).unwrap().remove(0);
        assert_eq!((holds(&within), holds(&outside)), (true, false), "call {call}");
        same(&within);
        same(&outside);
        let _region = aten_cuda::autocast::autocast("cuda", DType::BF16).unwrap();
        same(&compiled.call(&[&x, &y]).unwrap()[0]);
    }
    let report = compiled.report();
    let called: Vec<_> = report.programs.iter().map(|program| program.called).collect();
    assert_eq!(called, [None, None], "{report}");
}

#[test]
fn a_capture_within_a_function_ends_its_graph_and_is_refused_within_another() {
    let _simulated = testkit::simulated_runtime();
    let captures = compile(|x: &[Tensor]| {
        let made = x[0].add(1)?;
        let stream = Stream::new(None, 0)?;
        let mut graph = CUDAGraph::new();
        let _on = stream.guard();
        let captured = graph.capture(&stream, None, CaptureMode::Global, || x[0].mul(2))?;
        graph.replay()?;
        stream.synchronize()?;
        Ok(vec![made, captured.copy()?])
    });
    let x = numbers(&[40], 1);
    let expected = [bits(&x.add(1).unwrap()), bits(&x.mul(2).unwrap())];
    let check = || assert_eq!(captures.call(&[&x]).unwrap().iter().map(bits).collect::<Vec<_>>(), expected);
    (0..3).for_each(|_| check());
    assert_eq!(captures.report().programs[0].breaks[0].cause, "a capture begins");
    // Nothing that waits can be captured: the call says so, and nothing is left of it.
    let stream = Stream::new(None, 0).unwrap();
    let mut outer = CUDAGraph::new();
    let refused = {
        let _on = stream.guard();
        outer.capture(&stream, None, CaptureMode::Global, || captures.call(&[&x]))
    };
    assert!(refused.is_err());
    check();
}
