//! What the simulated libraries of the toolkit share: how a call comes in and is recorded, numbers and matrices in memory,
//! and from a checked piece of work to a stream.
//!
//! It knows none of the libraries but by the table of their handles.

pub(crate) mod door;
pub(crate) mod matrix;
pub(crate) mod numbers;
mod record;

use std::sync::Arc;

use cuda_sys::cufft::types::cufftResult_t;
use cuda_sys::{cublasStatus_t, cusolverStatus_t, ncclResult_t};

pub use self::record::LibraryCall;
pub(crate) use self::record::Record;

use crate::call::Call;
use crate::calls::launch;
use crate::model::library_work::LibraryWork;
use crate::report::ReportKind;

/// A library's status, as far as all of them say the same.
pub(crate) trait LibraryStatus: Copy {
    const INTERNAL_ERROR: Self;
    const EXECUTION_FAILED: Self;
    const NOT_SUPPORTED: Self;

    fn of(code: u32) -> Self;
    fn code(self) -> u32;
}

macro_rules! statuses {
    ($($status:ident: $internal:ident, $failed:ident, $unsupported:ident;)*) => {
        $(impl LibraryStatus for $status {
            const INTERNAL_ERROR: Self = Self::$internal;
            const EXECUTION_FAILED: Self = Self::$failed;
            const NOT_SUPPORTED: Self = Self::$unsupported;

            fn of(code: u32) -> Self {
                Self(code)
            }

            fn code(self) -> u32 {
                self.0
            }
        })*
    };
}

statuses! {
    cublasStatus_t: CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_NOT_SUPPORTED;
    cusolverStatus_t: CUSOLVER_STATUS_INTERNAL_ERROR, CUSOLVER_STATUS_EXECUTION_FAILED, CUSOLVER_STATUS_NOT_SUPPORTED;
    ncclResult_t: ncclInternalError, ncclUnhandledCudaError, ncclInvalidUsage;
    cufftResult_t: CUFFT_INTERNAL_ERROR, CUFFT_EXEC_FAILED, CUFFT_NOT_SUPPORTED;
}

impl Call<'_> {
    /// Reports a handle that another thread has set up, and one whose context is gone or lost.
    pub(crate) fn check_handle<S: LibraryStatus>(&mut self, context: u64, thread: u64) -> Result<(), S> {
        if thread != self.thread {
            let text = format!("thread {} works with a handle whose stream thread {thread} has set", self.thread);
            self.report(ReportKind::SharedHandle, text);
            if self.config.strict {
                return Err(S::EXECUTION_FAILED);
            }
        }
        if self.usable_context(context).is_err() {
            self.report(ReportKind::LibraryHandle, "the handle's context is gone or lost".to_owned());
            return Err(S::EXECUTION_FAILED);
        }
        Ok(())
    }

    /// Queues work on a stream, which must be of the context that the library works in.
    pub(crate) fn queue_work<S: LibraryStatus>(
        &mut self,
        context: u64,
        stream: u64,
        kernel: &'static str,
        work: Arc<dyn LibraryWork>,
    ) -> Result<(), S> {
        let Ok(key) = self.stream_named(stream) else {
            self.report(ReportKind::WrongStream, format!("{stream:#x} is no stream, or was destroyed"));
            return Err(S::EXECUTION_FAILED);
        };
        let streams = self.stream(key).map_err(|_| S::EXECUTION_FAILED)?.context;
        if self.home_of(streams) != context {
            let text = "the stream is of another device than the handle".to_owned();
            self.report(ReportKind::WrongStream, text);
            return Err(S::EXECUTION_FAILED);
        }
        let launch = self.library_launch(context, kernel, work).map_err(|_| S::EXECUTION_FAILED)?;
        launch::queue(self, stream, launch).map_err(|_| S::EXECUTION_FAILED)
    }

    /// Whether what is queued on a stream is captured.
    pub(crate) fn is_capturing(&mut self, stream: u64) -> bool {
        let key = self.stream_named(stream);
        key.is_ok_and(|key| self.stream(key).is_ok_and(|stream| stream.capturing.is_some()))
    }

    /// Refuses what a library can do and the simulator cannot.
    pub(crate) fn not_simulated<S: LibraryStatus>(&mut self, what: &str) -> S {
        self.report(ReportKind::NotSupported, format!("{what} is not simulated"));
        S::NOT_SUPPORTED
    }
}
