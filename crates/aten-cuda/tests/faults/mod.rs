//! Driver calls that fail, one after another, while a program runs on devices of a simulated machine.

use std::collections::BTreeSet;

use aten_cuda::Result;
use testkit::{CUresult, Fault, SimulatedRuntime};

/// A program, and what it gives.
pub(crate) type Program = fn() -> Result<Vec<u8>>;

/// Driver calls so far that were answered with success, with their numbers.
pub(crate) fn calls(rig: &SimulatedRuntime) -> Vec<(&'static str, u64)> {
    let answered = rig.machine().calls().into_iter().filter(|(_, code, _)| *code == CUresult::CUDA_SUCCESS);
    answered.map(|(call, _, count)| (call, count)).collect()
}

/// Runs the program with a call that fails, and once more; what is wrong with what happened. It gives what it is to give, or
/// the call's error, or says that there is no memory, and the second run gives what it is to give.
pub(crate) fn wrong(rig: &SimulatedRuntime, program: Program, expected: &[u8], fault: Fault) -> Option<String> {
    rig.machine().inject(fault);
    let outcome = program();
    rig.machine().clear_faults();
    match outcome {
        Ok(bytes) if bytes == expected => {}
        Ok(_) => return Some("a wrong result".to_owned()),
        Err(error) => {
            let cause = error.runtime().map(|cause| (cause.error_code(), cause.is_out_of_memory()));
            if cause.is_none_or(|(code, full)| code != Some(fault.code.0) && !full) {
                return Some(format!("another error: {error}"));
            }
        }
    }
    if let Some(inconsistency) = rig.runtime().inconsistency() {
        return Some(inconsistency);
    }
    match program() {
        Ok(bytes) if bytes == expected => rig.runtime().inconsistency(),
        Ok(_) => Some("the second run gives a wrong result".to_owned()),
        Err(error) => Some(format!("the second run: {error}")),
    }
}

/// Has the first, a middle and the last of the calls of a kind fail, each in a machine that has run nothing; what is wrong
/// with each, by this judgement, and how many were tried.
pub(crate) fn of_first_use(
    machine: impl Fn() -> SimulatedRuntime,
    program: Program,
    judge: impl Fn(&SimulatedRuntime, &[u8], Fault) -> Option<String>,
) -> (Vec<String>, usize) {
    let (expected, seen) = {
        let rig = machine();
        (program().expect("no call fails"), calls(&rig))
    };
    let (mut wrongs, mut tried) = (Vec::new(), 0);
    for (call, count) in seen {
        // Asked while the runtime is made, and while it starts.
        if ["cuDriverGetVersion", "cuInit", "cuDeviceGetCount"].contains(&call) {
            continue;
        }
        for occurrence in BTreeSet::from([1, count / 3 + 1, count]) {
            let rig = machine();
            let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_NOT_PERMITTED };
            tried += 1;
            wrongs.extend(judge(&rig, &expected, fault).map(|wrong| format!("{fault:?}: {wrong}")));
            rig.close_clean();
        }
    }
    (wrongs, tried)
}
