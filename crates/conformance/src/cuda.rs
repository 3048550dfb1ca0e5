//! The driver as cases see it: checked expectations, and things that are destroyed when the case ends.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt::Debug;
use std::ptr;
use std::thread;

use cuda_sys::driver::types::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgreenCtx, CUlibrary, CUmemoryPool, CUmodule,
    CUstream,
};
use cuda_sys::{CUresult, CallError, Driver, DriverError};

use super::case::{Enter, Needs};
use super::kit::Gate;

/// What a case's body returns.
pub type CaseResult<T = ()> = Result<T, Stop>;

/// Why a case ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Something the rest depends on failed.
    Failed(String),
    /// The driver lacks something the case is about.
    Skip(String),
}

/// Makes a call and gives its status; a function the driver lacks ends the case as skipped.
macro_rules! status {
    ($cu:ident . $function:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: pointers lead to variables that outlive the call; bad handles are passed only where drivers answer
        // them with an error (module documentation).
        let result = unsafe { $cu.driver().$function($($argument),*) };
        $crate::cuda::status_of(result)?
    }};
}

/// Makes a call that must succeed; the case ends when it does not.
macro_rules! ok {
    ($cu:ident . $function:ident ( $($argument:expr),* $(,)? )) => {{
        let status = status!($cu.$function($($argument),*));
        $crate::cuda::must_succeed(status, stringify!($function), file!(), line!())?
    }};
}

/// Makes a call that must give a certain code; the case goes on when it does not, and fails in the end.
macro_rules! want {
    ($code:ident, $cu:ident . $function:ident ( $($argument:expr),* $(,)? )) => {{
        let status = status!($cu.$function($($argument),*));
        $cu.expect_status(status, $crate::code::$code, stringify!($function), file!(), line!())
    }};
}

/// Two values must be equal; the case goes on when they are not, and fails in the end.
macro_rules! same {
    ($cu:ident, $got:expr, $want:expr) => {
        $cu.expect_same(&$got, &$want, stringify!($got), file!(), line!())
    };
}

/// A condition must hold; the case goes on when it does not, and fails in the end.
macro_rules! that {
    ($cu:ident, $condition:expr) => {
        $cu.expect_same(&$condition, &true, stringify!($condition), file!(), line!())
    };
}

/// The status of a call; an error when the driver does not have the function.
pub(super) fn status_of(result: Result<(), DriverError>) -> CaseResult<CUresult> {
    match result {
        Ok(()) => Ok(CUresult::CUDA_SUCCESS),
        Err(CallError::Failed { status, .. }) => Ok(status),
        Err(missing @ CallError::Missing(_)) => Err(Stop::Skip(missing.to_string())),
    }
}

/// An error when `status` is not success.
pub(super) fn must_succeed(status: CUresult, call: &str, file: &str, line: u32) -> CaseResult {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Stop::Failed(format!("{}:{line}: {call}: expected CUDA_SUCCESS, got {status:?}", short(file))))
}

fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Something to be undone when the case ends.
pub(super) enum Cleanup {
    Memory(CUdeviceptr),
    Host(*mut c_void),
    Stream(CUstream),
    Event(CUevent),
    Graph(CUgraph),
    Exec(CUgraphExec),
    Pool(CUmemoryPool),
    Module(CUmodule),
    Library(CUlibrary),
    Green(CUgreenCtx),
}

/// A handle that is used on another thread, as the driver allows for all handles.
#[derive(Clone, Copy)]
pub(super) struct Loose<T>(T);

impl<T: Copy> Loose<T> {
    pub(super) fn new(handle: T) -> Self {
        Self(handle)
    }

    pub(super) fn get(&self) -> T {
        self.0
    }
}

// SAFETY: handles are only passed to the driver, which takes them from any thread.
unsafe impl<T> Send for Loose<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Loose<T> {}

/// A driver, and the books of the case that runs on it.
pub struct Cuda<'d> {
    driver: &'d Driver,
    enter: &'d Enter,
    failures: RefCell<Vec<String>>,
    cleanups: RefCell<Vec<Cleanup>>,
    gates: RefCell<Vec<Gate>>,
}

impl Debug for Cuda<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl<'d> Cuda<'d> {
    pub(super) fn new(driver: &'d Driver, enter: &'d Enter) -> Self {
        Self { driver, enter, failures: RefCell::default(), cleanups: RefCell::default(), gates: RefCell::default() }
    }

    /// The driver under test.
    pub(super) fn driver(&self) -> &'d Driver {
        self.driver
    }

    /// Brings driver and thread into the state the case asks for.
    pub(super) fn prepare(&self, needs: &Needs) -> CaseResult {
        if needs.before_init {
            return Ok(());
        }
        let cu = self;
        ok!(cu.cuInit(0));
        let mut count = 0;
        ok!(cu.cuDeviceGetCount(&mut count));
        if usize::try_from(count).unwrap_or(0) < needs.devices {
            return Err(Stop::Skip(format!("needs {} devices, found {count}", needs.devices)));
        }
        if needs.context {
            let context = self.primary(0)?;
            ok!(cu.cuCtxSetCurrent(context));
        }
        Ok(())
    }

    /// Destroys what the case made and gives back what failed.
    pub(super) fn finish(&self, needs: &Needs) -> Vec<String> {
        for gate in self.gates.take() {
            gate.open();
        }
        while let Some(cleanup) = self.next_cleanup() {
            if let Err(Stop::Failed(text) | Stop::Skip(text)) = self.undo(&cleanup) {
                self.fail(format!("cleanup: {text}"));
            }
        }
        if needs.context
            && let Err(Stop::Failed(text)) = self.leave()
        {
            self.fail(format!("afterwards: {text}"));
        }
        self.failures.take()
    }

    fn next_cleanup(&self) -> Option<Cleanup> {
        self.cleanups.borrow_mut().pop()
    }

    /// Undoes something when the case ends; last in, first out.
    pub(super) fn later(&self, cleanup: Cleanup) {
        self.cleanups.borrow_mut().push(cleanup);
    }

    /// Opens a gate when the case ends, if nothing did before.
    pub(super) fn later_open(&self, gate: Gate) {
        self.gates.borrow_mut().push(gate);
    }

    fn leave(&self) -> CaseResult {
        let cu = self;
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
        Ok(())
    }

    fn undo(&self, cleanup: &Cleanup) -> CaseResult {
        let cu = self;
        match *cleanup {
            Cleanup::Memory(pointer) => ok!(cu.cuMemFree_v2(pointer)),
            Cleanup::Host(pointer) => ok!(cu.cuMemFreeHost(pointer)),
            Cleanup::Stream(stream) => ok!(cu.cuStreamDestroy_v2(stream)),
            Cleanup::Event(event) => ok!(cu.cuEventDestroy_v2(event)),
            Cleanup::Graph(graph) => ok!(cu.cuGraphDestroy(graph)),
            Cleanup::Exec(exec) => ok!(cu.cuGraphExecDestroy(exec)),
            Cleanup::Pool(pool) => ok!(cu.cuMemPoolDestroy(pool)),
            Cleanup::Module(module) => ok!(cu.cuModuleUnload(module)),
            Cleanup::Library(library) => ok!(cu.cuLibraryUnload(library)),
            Cleanup::Green(green) => ok!(cu.cuGreenCtxDestroy(green)),
        }
        Ok(())
    }

    fn fail(&self, text: String) {
        self.failures.borrow_mut().push(text);
    }

    /// Notes a failure when a call's status is not the expected one.
    pub(super) fn expect_status(&self, got: CUresult, want: CUresult, call: &str, file: &str, line: u32) {
        if got != want {
            self.fail(format!("{}:{line}: {call}: expected {want:?}, got {got:?}", short(file)));
        }
    }

    /// Notes a failure when two values differ.
    pub(super) fn expect_same<T: PartialEq<U> + Debug, U: Debug>(
        &self,
        got: &T,
        want: &U,
        what: &str,
        file: &str,
        line: u32,
    ) {
        if got != want {
            self.fail(format!("{}:{line}: {what}: expected {want:?}, got {got:?}", short(file)));
        }
    }

    /// Runs calls on another thread, with this thread's current context, and waits for it.
    pub(super) fn on_another_thread(&self, body: impl FnOnce(&Cuda<'_>) -> CaseResult + Send) -> CaseResult {
        let context = Loose(self.current()?);
        let (driver, enter) = (self.driver, self.enter);
        let there = move || {
            let guard = enter();
            let cu = Cuda::new(driver, enter);
            let result = cu.adopt(context).and_then(|()| body(&cu));
            let failures = cu.finish(&Needs::NO_CONTEXT);
            drop(guard);
            (result, failures)
        };
        let outcome = thread::scope(|scope| scope.spawn(there).join());
        let (result, failures) = outcome.map_err(|_| Stop::Failed("the other thread panicked".to_owned()))?;
        self.failures.borrow_mut().extend(failures);
        result
    }

    fn adopt(&self, context: Loose<CUcontext>) -> CaseResult {
        let cu = self;
        ok!(cu.cuCtxSetCurrent(context.get()));
        Ok(())
    }

    /// Retains a device's primary context; the caller releases it.
    pub(super) fn primary(&self, device: CUdevice) -> CaseResult<CUcontext> {
        let cu = self;
        let mut context = ptr::null_mut();
        ok!(cu.cuDevicePrimaryCtxRetain(&mut context, device));
        Ok(context)
    }
}
