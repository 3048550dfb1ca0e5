//! The one door that every call of the libraries comes through.
//!
//! As for the driver: the machine of the thread, its lock, the clock, injected faults, the function. A panic inside becomes
//! the library's internal error. Every call is recorded. Two calls with one handle that overlap are noticed here, as the
//! second waits for the lock.
//!
//! # Safety
//! As for `blas`: what `c_functions` defines hands on pointers of C callers, who keep the duties of the C functions.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::LibraryStatus;
use super::record::LibraryCall;
use crate::call::Call;
use crate::host_work;
use crate::machine::{Machine, thread_number};
use crate::panics::caught;
use crate::report::ReportKind;

/// Defines the C functions of a library, which answer with its status. What one of them does is the function of the library's
/// model behind its arrow; the module of the model is a neighbour of that in which they are defined.
macro_rules! c_functions {
    ($status:ty; $($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[allow(clippy::too_many_arguments, reason = "the C function has as many")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> $status {
                let arguments = vec![$((stringify!($argument), format!("{:?}", $argument))),*];
                $crate::toolkit::door::enter(stringify!($symbol), arguments, |call| {
                    super::$area::$model(
                        call,
                        // SAFETY: the caller keeps the C function's duties for this argument.
                        $(unsafe { $crate::claim::IntoModel::into_model($argument) }),*
                    )
                })
            }
        )*
    };
}

pub(crate) use c_functions;

/// Handles in calls that have not returned, by machine, with the thread that came first.
static IN_USE: Mutex<BTreeMap<(usize, u64), u64>> = Mutex::new(BTreeMap::new());

/// A handle is in a call while this lives.
struct InUse {
    key: (usize, u64),
    /// The thread that is in a call with it already.
    other: Option<u64>,
}

impl InUse {
    fn enter(machine: usize, handle: u64) -> Self {
        let key = (machine, handle);
        let mut all = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let other = all.get(&key).copied();
        if other.is_none() {
            all.insert(key, thread_number());
        }
        Self { key, other }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.other.is_none() {
            IN_USE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        }
    }
}

/// Answers a call of a function with what `function` says.
pub(crate) fn enter<S: LibraryStatus>(
    symbol: &'static str,
    arguments: Vec<(&'static str, String)>,
    function: impl FnOnce(&mut Call<'_>) -> Result<(), S>,
) -> S {
    if host_work::is_inside() {
        return S::INTERNAL_ERROR;
    }
    let machine = Machine::current();
    let handle = handle_of(&arguments);
    let in_use = handle.map(|handle| InUse::enter(machine.number(), handle));
    let other = in_use.as_ref().and_then(|in_use| in_use.other);
    let answered = caught(|| {
        let mut call = Call::new(machine.shared(), symbol);
        call.pass_call_time();
        call.catch_up();
        if let Some(other) = other {
            call.report(
                ReportKind::SharedHandle,
                format!("another thread ({other}) is in a call with the same handle"),
            );
        }
        let status = match call.fault_for(symbol) {
            Some(code) => {
                call.note_fault_in_group(symbol, code.0);
                S::of(code.0)
            }
            None => answer(&mut call, function),
        };
        call.destroy_orphans();
        call.calling = symbol;
        record(&mut call, symbol, arguments, handle, status.code());
        status
    });
    answered.unwrap_or(S::INTERNAL_ERROR)
}

fn answer<S: LibraryStatus>(call: &mut Call<'_>, function: impl FnOnce(&mut Call<'_>) -> Result<(), S>) -> S {
    call.launched = None;
    let finished = function(call).and_then(|()| call.finish_launch().map_err(|_| S::EXECUTION_FAILED));
    finished.err().unwrap_or(S::of(0))
}

fn record(
    call: &mut Call<'_>,
    symbol: &'static str,
    arguments: Vec<(&'static str, String)>,
    handle: Option<u64>,
    status: u32,
) {
    call.count_call(symbol, status);
    let thread = call.thread;
    let set = handle.and_then(|handle| call.blas.set_to(handle).or_else(|| call.solver.set_to(handle)));
    let (stream, workspace) = set.map_or((None, None), |(stream, workspace)| (Some(stream), workspace));
    call.library_record.add(LibraryCall { symbol, arguments, status, thread, stream, workspace });
}

/// The handle that a call is made with. A light handle of cuBLASLt may be shared by threads.
fn handle_of(arguments: &[(&'static str, String)]) -> Option<u64> {
    let (name, text) = arguments.first()?;
    let digits = text.strip_prefix("0x").filter(|_| *name == "handle")?;
    u64::from_str_radix(digits, 16).ok().filter(|&handle| handle != 0)
}
