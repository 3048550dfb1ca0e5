//! The one door that every call comes through.
//!
//! In this order: the calling thread's machine, its lock, the clock, injected faults, what the function needs, the
//! function itself. A panic inside becomes `CUDA_ERROR_UNKNOWN`; every answer is counted, and one that the export's
//! list does not have is reported.

use cuda_sys::CUresult;

use crate::call::Call;
use crate::codes::{Answer, CALL_REQUIRES_NEWER_DRIVER, NOT_PERMITTED, UNKNOWN};
use crate::export::{Export, Needs};
use crate::host_work;
use crate::machine::Machine;
use crate::panics::caught;
use crate::report::ReportKind;

/// Answers a call of `export` with what `function` says.
pub(crate) fn enter(export: &'static Export, function: impl FnOnce(&mut Call<'_>) -> Answer) -> CUresult {
    let is_inside = host_work::is_inside();
    if is_inside && export.needs != Needs::Nothing {
        return NOT_PERMITTED;
    }
    let machine = Machine::current();
    let answered = caught(|| {
        let mut call = Call::new(machine.shared(), export.symbol);
        // A function of the program must not wait for another one behind it.
        if !is_inside {
            call.pass_call_time();
            call.catch_up();
        }
        if export.version > call.config.driver_version {
            return CALL_REQUIRES_NEWER_DRIVER;
        }
        if let Some(code) = call.fault_for(export.symbol) {
            call.count_call(export.symbol, code.0);
            return code;
        }
        call.launched = None;
        let code = match answer(export, &mut call, function).and_then(|()| call.finish_launch()) {
            Ok(()) => CUresult::CUDA_SUCCESS,
            Err(code) => code,
        };
        if !is_inside {
            call.destroy_orphans();
        }
        call.count_call(export.symbol, code.0);
        if !export.may_answer(code) {
            call.calling = export.symbol;
            call.report(ReportKind::UndeclaredCode, format!("answered {code:?}, which its export does not list"));
        }
        code
    });
    answered.unwrap_or(UNKNOWN)
}

/// Takes what the program tells by a table of functions. No time passes, and no work is done meanwhile.
pub(crate) fn tell(function: impl FnOnce(&mut Call<'_>) -> Answer) -> CUresult {
    let machine = Machine::current();
    let told = caught(|| {
        let mut call = Call::new(machine.shared(), "a table of functions");
        function(&mut call)
    });
    match told {
        Some(Ok(())) => CUresult::CUDA_SUCCESS,
        Some(Err(code)) => code,
        None => UNKNOWN,
    }
}

fn answer(export: &Export, call: &mut Call<'_>, function: impl FnOnce(&mut Call<'_>) -> Answer) -> Answer {
    match export.needs {
        Needs::Nothing | Needs::Handle | Needs::LateInit | Needs::LateContext | Needs::LostContext => {}
        Needs::Init | Needs::InitHandle => call.need_init()?,
        Needs::Context => {
            call.need_context()?;
        }
    }
    function(call)
}
