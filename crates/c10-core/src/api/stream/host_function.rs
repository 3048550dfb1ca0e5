//! Functions that a stream calls on the host.
//!
//! **Invariant:** what a capture records is kept by its graph, and is called at each replay; everything else is called once.

use std::sync::Arc;

use crate::api::graph::CaptureScope;
use crate::api::stream::Stream;
use crate::base::error::{Error, Result};
use crate::driver::Repeated;
use crate::state::captures::KeptId;
use crate::thread::pending::PuttingOff;

impl Stream {
    /// Queues a call of a function on the host; CUDA's `cuLaunchHostFunc`. A thread of the driver calls the function
    /// when the work queued before is done. Later work of the stream waits for it.
    ///
    /// The function must not use the driver, and so no function of this crate that makes a driver call: the driver
    /// would refuse, or wait for itself. It can send to a channel or set a flag. A panic is caught, with a warning. If
    /// the device's context is lost, the function is never called.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::Stream;
    ///
    /// let (stream, (tell, told)) = (Stream::new(None, 0)?, std::sync::mpsc::channel());
    /// stream.launch_host_func(move || tell.send("done").unwrap())?;
    /// stream.synchronize()?;
    /// assert_eq!(told.try_recv(), Ok("done"));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::StreamError::HostFunctionDuringCapture`] while the stream captures: a graph calls a function at each
    /// replay, for which [`CaptureScope::launch_host_func`] takes one that can be called again; the driver's error. The
    /// function is dropped then.
    #[doc(alias("add_callback", "cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch_host_func(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        PuttingOff::settle("a function of the host is queued");
        let ready = self.ready()?;
        if ready.captures.of(&ready.api, self.reference())?.is_some() {
            return Err(Error::Stream(crate::base::error::StreamError::HostFunctionDuringCapture));
        }
        ready.api.call_on_host(self.reference(), Box::new(function))
    }
}

impl Stream {
    /// Queues a call of a function on the host; while the stream captures, records it for each replay.
    pub(crate) fn queue_on_host(&self, function: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let ready = self.ready()?;
        let Some(capture) = ready.captures.of(&ready.api, self.reference())? else {
            return ready.api.call_on_host(self.reference(), Box::new(function));
        };
        let function = Arc::new(Repeated::new(function));
        ready.api.capture_call_on_host(self.reference(), &function)?;
        ready.captures.keep(capture.id, KeptId::of(&function), || function);
        Ok(())
    }
}

impl CaptureScope<'_> {
    /// Records a call of a function on the host. The graph keeps the function and calls it at each replay; otherwise as
    /// [`Stream::launch_host_func`].
    ///
    /// # Errors
    /// The driver's error.
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_func(&self, function: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let ready = self.stream.ready()?;
        if ready.captures.of(&ready.api, self.stream.reference())?.is_none() {
            return Err(Error::Graph(crate::base::error::GraphError::NotCapturing));
        }
        self.stream.queue_on_host(function)
    }
}
