//! Every driver call of an operation fails, at every place where the operation makes it, and device memory runs out in
//! the middle of it.
//!
//! Whatever fails: the operation returns that error, with what it was doing, or goes on and is right; nothing is lost, and
//! the same operation works afterwards.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aten_cuda::expression::JitFunction;
use aten_cuda::{CrossEntropy, DType, Error, GradScaler, Result, Scalar, Tensor, autocast, deterministic, random};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use testkit::{CUresult, Config, Fault, SimulatedRuntime};

/// Makes its tensors, works with them, and returns what came out.
struct Scenario {
    name: &'static str,
    run: fn() -> Result<Vec<u8>>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "add", run: || ramp(&[300])?.add(&ramp(&[300])?)?.to_bytes() },
    Scenario { name: "add with a number", run: || ramp(&[5])?.add(Scalar::Float(2.5))?.to_bytes() },
    Scenario {
        name: "function of expressions",
        run: || {
            let function = JitFunction::parse("f(x, y, alpha=2.0) = x * y + alpha, x - y")?;
            let (x, y) = (ramp(&[4, 30])?, ramp(&[30])?);
            let [whole, _] = function.arrays([&x, &x], &[])?;
            let [sum, difference] = function.arrays([&x, &y], &[])?;
            Ok([whole.to_bytes()?, sum.to_bytes()?, difference.to_bytes()?].concat())
        },
    },
    Scenario { name: "strided copy", run: || ramp(&[20, 30])?.t()?.contiguous()?.to_bytes() },
    Scenario { name: "cast", run: || ramp(&[64])?.to_dtype(DType::F16)?.to_bytes() },
    Scenario {
        name: "sum in two steps",
        run: || Tensor::ones(&[1 << 20], DType::F32, "cuda")?.sum((), false, None)?.to_bytes(),
    },
    Scenario { name: "largest of rows", run: || ramp(&[8, 40])?.argmax(Some(1), false)?.to_bytes() },
    Scenario { name: "softmax", run: || ramp(&[8, 100])?.softmax(1, None)?.to_bytes() },
    Scenario { name: "cumsum", run: || ramp(&[4, 500])?.cumsum(1, None)?.to_bytes() },
    Scenario {
        name: "long running sum",
        run: || ramp(&[12_500, 1])?.expand(&[12_500, 2])?.copy()?.cumsum(0, DType::F64)?.to_bytes(),
    },
    Scenario {
        name: "cross entropy",
        run: || ramp(&[6, 8])?.cross_entropy(&places(6, 8)?, &CrossEntropy::default())?.to_bytes(),
    },
    Scenario { name: "sort", run: || both(ramp(&[3, 700])?.sort(1, true)?) },
    Scenario { name: "sort of a long row", run: || both(ramp(&[2100])?.to_dtype(DType::I16)?.sort(0, true)?) },
    Scenario { name: "topk", run: || both(ramp(&[4, 300])?.topk(5, 1, true)?) },
    Scenario { name: "unique", run: || places(100, 7)?.unique()?.0.to_bytes() },
    Scenario { name: "nonzero", run: || places(50, 2)?.nonzero()?.to_bytes() },
    Scenario { name: "gather", run: || ramp(&[40])?.gather(0, &places(9, 40)?)?.to_bytes() },
    Scenario {
        name: "index_put",
        run: || {
            let to = ramp(&[10, 4])?;
            to.index_put_(&[Some(&places(3, 10)?)], &Tensor::ones(&[3, 4], DType::F32, "cuda")?, true)?;
            to.to_bytes()
        },
    },
    Scenario {
        name: "index_add in the order of the index",
        run: || {
            // The operations of other tests are right either way.
            deterministic::use_deterministic_algorithms(true, false);
            let to = ramp(&[9])?.index_add(0, &places(2500, 9)?, &ramp(&[2500])?, 1);
            deterministic::use_deterministic_algorithms(false, false);
            to?.to_bytes()
        },
    },
    Scenario {
        name: "masked_select",
        run: || {
            let a = ramp(&[99])?;
            a.masked_select(&a.gt(Scalar::Int(50))?)?.to_bytes()
        },
    },
    Scenario { name: "matmul", run: || ramp(&[20, 30])?.matmul(&ramp(&[30, 10])?)?.to_bytes() },
    Scenario {
        name: "matmul of halves",
        run: || {
            let a = ramp(&[5, 7])?.to_dtype(DType::F16)?;
            a.matmul(&a.t()?)?.to_bytes()
        },
    },
    Scenario { name: "bmm", run: || ramp(&[2, 5, 6])?.bmm(&ramp(&[2, 6, 4])?)?.to_bytes() },
    Scenario {
        name: "uniform_",
        run: || {
            random::manual_seed(5)?;
            Ok([
                seeded(|drawn| drawn.uniform_(0.0, 1.0, None).map(drop))?,
                seeded(|drawn| drawn.normal_(0.0, 1.0, None).map(drop))?,
            ]
            .concat())
        },
    },
    Scenario {
        name: "dropout",
        run: || {
            random::manual_seed(5)?;
            ramp(&[200])?.dropout(0.5, true)?.to_bytes()
        },
    },
    Scenario {
        name: "multinomial",
        run: || {
            random::manual_seed(5)?;
            ramp(&[3, 20])?.multinomial(4, false, None)?.to_bytes()
        },
    },
    Scenario {
        name: "randperm",
        run: || {
            random::manual_seed(5)?;
            Tensor::randperm(500, DType::I64, "cuda", None)?.to_bytes()
        },
    },
    Scenario { name: "cat", run: || Tensor::cat(&[&ramp(&[3, 4])?, &ramp(&[2, 4])?], 0)?.to_bytes() },
    Scenario { name: "to the host and back", run: || ramp(&[100])?.cpu()?.cuda(None)?.to_bytes() },
    Scenario { name: "display", run: || Ok(ramp(&[3, 3])?.to_string().into_bytes()) },
    Scenario { name: "item", run: || Ok(format!("{:?}", ramp(&[4])?.select(0, 2)?.item()?).into_bytes()) },
    Scenario { name: "captured", run: captured },
    Scenario {
        name: "autocast",
        run: || {
            let weight = ramp(&[8, 8])?.as_parameter();
            autocast::with_autocast("cuda", (), || {
                let product = weight.mm(&weight)?.mm(&weight)?;
                product.softmax(1, None)?.sum((), false, None)?.to_bytes()
            })?
        },
    },
    Scenario {
        name: "gradient scaler",
        run: || {
            let mut scaler = GradScaler::new("cuda", ())?;
            let gradients = [scaler.scale(&ramp(&[20])?)?, scaler.scale(&ramp(&[4, 6])?.t()?)?];
            let sum = || Tensor::cat(&[&gradients[0], &gradients[1].flatten()?], 0)?.to_bytes();
            let stepped = scaler.step((), &[&gradients[0], &gradients[1]], sum)?;
            scaler.update()?;
            Ok([stepped.unwrap_or_default(), scaler.get_scale()?.to_le_bytes().to_vec()].concat())
        },
    },
];

/// The numbers from 0 on, on the device.
fn ramp(sizes: &[i64]) -> Result<Tensor> {
    Tensor::arange(0, sizes.iter().product::<i64>(), 1, Some(DType::F32), "cuda")?.view(sizes)
}

/// Some indices below a number.
fn places(count: i64, below: i64) -> Result<Tensor> {
    let places: Vec<i64> = (0..count).map(|at| at * 7 % below).collect();
    Tensor::from_slice(&places, &[count])?.cuda(None)
}

fn both((first, second): (Tensor, Tensor)) -> Result<Vec<u8>> {
    Ok([first.to_bytes()?, second.to_bytes()?].concat())
}

fn seeded(draw: impl Fn(&Tensor) -> Result<()>) -> Result<Vec<u8>> {
    let drawn = Tensor::empty(&[1000], DType::F32, "cuda")?;
    draw(&drawn)?;
    drawn.to_bytes()
}

/// Some operations as a graph, replayed twice.
fn captured() -> Result<Vec<u8>> {
    let (input, places) = (ramp(&[50])?, places(20, 50)?);
    let warm = input.mul(&input)?.gather(0, &places)?.sum((), false, None)?;
    drop(warm);
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    let sum = graph
        .record(&stream, None, CaptureMode::Global, |_| input.mul(&input)?.gather(0, &places)?.sum((), false, None))?;
    graph.replay()?;
    input.add_(Scalar::Int(1))?;
    graph.replay()?;
    sum.to_bytes()
}

fn simulated() -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default().seed(1))
}

/// Driver calls so far that were answered with success.
fn calls(rig: &SimulatedRuntime) -> Vec<(&'static str, u64)> {
    let answered = rig.machine().calls().into_iter().filter(|(_, code, _)| *code == CUresult::CUDA_SUCCESS);
    answered.map(|(call, _, count)| (call, count)).collect()
}

/// The calls that came in between, each with its number.
fn since(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let count = |call: &str| before.iter().find(|(name, _)| *name == call).map_or(0, |(_, count)| *count);
    after.iter().map(|&(call, all)| (call, all - count(call))).filter(|(_, count)| *count > 0).collect()
}

fn allocated(rig: &SimulatedRuntime) -> i64 {
    rig.runtime().memory().stats(0).map_or(-1, |stats| stats.allocated_bytes.all.current)
}

/// Runs the scenario with a call that fails, and says what is wrong with what it did.
fn wrong(rig: &SimulatedRuntime, scenario: &Scenario, expected: &[u8], fault: Fault) -> Option<String> {
    rig.machine().inject(fault);
    let outcome = catch_unwind(AssertUnwindSafe(scenario.run));
    rig.machine().clear_faults();
    let told = match outcome {
        Err(_) => return Some("it panics".to_owned()),
        Ok(Ok(bytes)) if bytes == expected => None,
        // Printing tells the error within the text.
        Ok(Ok(bytes)) if bytes.starts_with(b"tensor(<") => None,
        Ok(Ok(_)) => return Some("a wrong result".to_owned()),
        Ok(Err(error)) => Some(error),
    };
    if let Some(error) = told {
        let Some(cause) = error.runtime() else { return Some(format!("another error: {error}")) };
        if cause.error_code() != Some(fault.code.0) && !cause.is_out_of_memory() {
            return Some(format!("another cause: {error}"));
        }
        let is_named = matches!(&error, Error::Operation(failed) if !failed.steps.is_empty());
        if !is_named
            && ["cuLaunchKernel", "cuMemAlloc_v2"].contains(&fault.call)
            && !scenario.name.starts_with("captured")
        {
            return Some(format!("no operation is named: {error}"));
        }
    }
    if let Some(inconsistency) = rig.runtime().inconsistency() {
        return Some(inconsistency);
    }
    rig.runtime().synchronize(0).err().map(|error| format!("the device cannot be used any more: {error}"))
}

/// As [`wrong`], and whether the scenario works afterwards and leaves as much as it did before.
fn wrong_then(rig: &SimulatedRuntime, scenario: &Scenario, expected: &[u8], fault: Fault, kept: i64) -> Option<String> {
    if let Some(wrong) = wrong(rig, scenario, expected, fault) {
        return Some(wrong);
    }
    match (scenario.run)() {
        Err(error) => return Some(format!("the second run: {error}")),
        Ok(bytes) if bytes != expected => return Some("the second run gives a wrong result".to_owned()),
        Ok(_) => {}
    }
    let left = allocated(rig);
    (left != kept).then(|| format!("{left} bytes stay allocated instead of {kept}"))
}

#[test]
fn any_call_of_an_operation_may_fail() {
    let mut wrongs = Vec::new();
    let mut tried = 0;
    for scenario in SCENARIOS {
        let rig = simulated();
        let expected = (scenario.run)().unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        let (kept, before) = (allocated(&rig), calls(&rig));
        assert_eq!((scenario.run)().ok().as_ref(), Some(&expected), "{}", scenario.name);
        for (call, count) in since(&before, &calls(&rig)) {
            for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_NOT_PERMITTED] {
                for occurrence in 1..=count {
                    let fault = Fault { call, occurrence, code };
                    tried += 1;
                    let found = wrong_then(&rig, scenario, &expected, fault, kept);
                    wrongs.extend(found.map(|found| format!("{}: {fault:?}: {found}", scenario.name)));
                }
            }
        }
    }
    assert!(wrongs.is_empty(), "{} of {tried} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    assert!(tried > 500, "only {tried} places");
}

#[test]
fn any_call_of_a_first_use_may_fail() {
    let mut wrongs = Vec::new();
    for scenario in SCENARIOS {
        let (expected, kept, seen) = {
            let rig = simulated();
            let expected = (scenario.run)().unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
            (expected, allocated(&rig), calls(&rig))
        };
        for (call, count) in seen {
            // Asked while the runtime is made, and while it starts, which has its own test.
            if ["cuDriverGetVersion", "cuInit", "cuDeviceGetCount"].contains(&call) {
                continue;
            }
            let places = BTreeSet::from([1, count / 3 + 1, count]);
            for occurrence in places {
                let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_NOT_PERMITTED };
                let rig = simulated();
                let found = wrong_then(&rig, scenario, &expected, fault, kept);
                wrongs.extend(found.map(|found| format!("{}: {fault:?}: {found}", scenario.name)));
            }
        }
    }
    assert!(wrongs.is_empty(), "{} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
}

#[test]
fn memory_may_run_out_at_every_allocation() {
    let mut wrongs = Vec::new();
    let mut tried = 0;
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name != "captured") {
        let rig = simulated();
        // Without a cache each allocation is a call.
        rig.runtime().memory().enable_caching(false);
        let expected = (scenario.run)().unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        let (kept, before, live) = (allocated(&rig), calls(&rig), rig.machine().live());
        assert_eq!((scenario.run)().ok().as_ref(), Some(&expected), "{}", scenario.name);
        let count =
            since(&before, &calls(&rig)).iter().find(|(call, _)| *call == "cuMemAlloc_v2").map_or(0, |call| call.1);
        assert!(count > 0, "{} allocates nothing", scenario.name);
        for occurrence in 1..=count {
            let fault = Fault { call: "cuMemAlloc_v2", occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY };
            tried += 1;
            let found = wrong_then(&rig, scenario, &expected, fault, kept);
            let found = found.or_else(|| (rig.machine().live() != live).then(|| "something is left".to_owned()));
            wrongs.extend(found.map(|found| format!("{}: allocation {occurrence}: {found}", scenario.name)));
        }
    }
    assert!(wrongs.is_empty(), "{} of {tried} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    assert!(tried > 60, "only {tried} allocations");
}
