//! Work that other libraries queue on the streams of a runtime, such as cuBLAS.
//!
//! **Invariants:** buffers that a library is given are noted on its stream, and kept by the graph that captures it, as for
//! a launch of a kernel. The device's context is current while a library is called.

use std::path::PathBuf;

use crate::api::launch::Arg;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::StreamRef;
use crate::driver::{Shape, Source};
use crate::runtime::{Runtime, Started};
use crate::state::launches::NameId;
use crate::thread::pending::PuttingOff;
use crate::trace::{TraceEvent, TraceKind, lasting_name};

/// Work of a library has no blocks and threads that this crate knows of.
const NO_SHAPE: Shape = Shape { grid: [0; 3], block: [0; 3], shared_bytes: 0 };

/// A library's function, as [`Runtime::last_launches`] names it; made by [`Runtime::library_function`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let runtime = c10_core::Runtime::current();
/// assert_eq!(runtime.library_function("cublasSgemm")?, runtime.library_function("cublasSgemm")?);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryFunction(NameId, &'static str);

/// The stream on which a library is to queue its work; given by [`Runtime::queue_by_library`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceIndex, Error, LibraryStream, Runtime};
///
/// let runtime = Runtime::current();
/// let function = runtime.library_function("cublasSetStream")?;
/// let stream = runtime.queue_by_library(function, DeviceIndex(0), [], |stream| Ok::<_, Error>(stream))?;
/// assert_eq!(stream, LibraryStream { handle: 0, is_capturing: false });
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryStream {
    /// The driver's handle, 0 for the default stream.
    pub handle: usize,
    /// Whether a graph captures the stream.
    pub is_capturing: bool,
}

/// Where the libraries that work with a runtime's driver are to be found; answered by [`Runtime::library_source`].
///
/// ```
/// use c10_core::{LibrarySource, Runtime};
///
/// let folder = match Runtime::default_runtime().library_source() {
///     LibrarySource::Beside(folder) => Some(folder),
///     _ => None,
/// };
/// assert_eq!(folder.is_some(), std::env::var_os("CUDA_SYS_LIBCUDA").is_some_and(|path| !path.is_empty()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LibrarySource {
    /// Where the system keeps them: so does it keep the driver.
    System,
    /// In this folder, beside the driver that the program chose.
    Beside(PathBuf),
    /// Nowhere: the program has given the driver as a table of functions, and has to give the libraries too.
    Given,
}

impl Runtime {
    /// Where to look for a library that works with the driver of this runtime. Starts nothing.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{LibrarySource, Runtime};
    ///
    /// // The simulated driver is in the process; libraries of the system would not know it.
    /// assert_eq!(Runtime::current().library_source(), LibrarySource::Given);
    /// ```
    #[must_use]
    pub fn library_source(&self) -> LibrarySource {
        match self.source() {
            Source::Given => LibrarySource::Given,
            Source::File(driver) => beside(driver.parent()),
            Source::Search => match std::env::var_os("CUDA_SYS_LIBCUDA").filter(|path| !path.is_empty()) {
                Some(driver) => beside(PathBuf::from(driver).parent()),
                None => LibrarySource::System,
            },
        }
    }

    /// Names a library's function for the list of last launches. Starts the runtime.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn library_function(&self, name: &str) -> Result<LibraryFunction> {
        Ok(LibraryFunction(self.ready()?.launches.name(name), lasting_name(name)))
    }

    /// Calls a library that makes or destroys something on the device, such as a handle. A capture that is under way
    /// neither forbids such calls nor sees them.
    ///
    /// # Errors
    /// The driver knows no such device, or what `call` returns.
    pub fn with_library<T, E: From<Error>>(
        &self,
        device: DeviceIndex,
        call: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let ready = self.check_device(device)?;
        let _relaxed = ready.relaxed()?;
        ready.api.bind(device)?;
        call()
    }

    /// The current stream of a device as a library takes it. Starts the runtime.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceIndex, LibraryStream, Runtime};
    ///
    /// let stream = Runtime::current().library_stream(DeviceIndex(0))?;
    /// assert_eq!(stream, LibraryStream { handle: 0, is_capturing: false });
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The runtime cannot start, or the driver's error.
    #[inline]
    pub fn library_stream(&self, device: DeviceIndex) -> Result<LibraryStream> {
        let ready = self.ready()?;
        let stream = self.streams().current_ref(device);
        let is_capturing = ready.captures.of(&ready.api, stream)?.is_some();
        Ok(LibraryStream { handle: stream.handle.0, is_capturing })
    }

    /// Lets a library queue work on the current stream of a device. `call` is given the stream, and may read and write
    /// the buffers until that work is done; they come as arguments of launches do, with what the work does to them. The work stands in the list of last launches, and with
    /// `CUDA_LAUNCH_BLOCKING` in the environment it is waited for.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Arg, DeviceBuffer, DeviceIndex, Error, MemoryAccess, Runtime};
    ///
    /// let (runtime, buffer) = (Runtime::current(), DeviceBuffer::new(64, None)?);
    /// let function = runtime.library_function("cublasSgemm")?;
    /// let used = [Arg::from(&buffer).accessed(MemoryAccess::Output)];
    /// let stream = runtime.queue_by_library(function, DeviceIndex(0), used, |stream| Ok::<_, Error>(stream))?;
    /// assert_eq!((stream.handle, stream.is_capturing), (0, false));
    /// assert_eq!(runtime.last_launches(0)?[0].to_string(), "cublasSgemm on stream 0x0");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// A buffer belongs to another runtime, what `call` returns, or the driver's error.
    pub fn queue_by_library<'b, T, E: From<Error>>(
        &self,
        function: LibraryFunction,
        device: DeviceIndex,
        buffers: impl IntoIterator<Item = Arg<'b>, IntoIter: Clone>,
        call: impl FnOnce(LibraryStream) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        PuttingOff::settle("a library queues work");
        let ready = self.ready()?;
        let stream = self.streams().current_ref(device);
        let capture = ready.captures.of(&ready.api, stream)?;
        let buffers = buffers.into_iter();
        for buffer in buffers.clone().filter_map(|argument| argument.buffer()) {
            self.check_same(buffer.runtime(), "buffer")?;
            buffer.use_in(ready, stream, capture)?;
        }
        ready.api.bind(device)?;
        ready.api.trace.begin(TraceKind::Launch, stream);
        let made = call(LibraryStream { handle: stream.handle.0, is_capturing: capture.is_some() })?;
        let LibraryFunction(name, reported) = function;
        let event = || TraceEvent::LibraryQueued { function: name.number(), stream: stream.into() };
        ready.api.trace.report_now(TraceKind::Launch, event);
        if capture.is_none() {
            note(ready, function, stream)?;
        }
        let uses = || buffers.filter_map(|argument| argument.memory_use()).collect::<Vec<_>>();
        ready.api.trace.report_accesses(Some(stream), reported, uses)?;
        Ok(made)
    }
}

/// Notes what a library has queued, and waits for it where that is asked for.
fn note(ready: &Started, LibraryFunction(name, _): LibraryFunction, stream: StreamRef) -> Result<()> {
    if ready.launches.blocking {
        let done = ready.api.stream_wait_after_launch(stream);
        done.map_err(|error| ready.launches.blame(error, name, &NO_SHAPE, stream))?;
    }
    ready.launches.note(name, &NO_SHAPE, stream);
    Ok(())
}

fn beside(folder: Option<&std::path::Path>) -> LibrarySource {
    folder.map_or(LibrarySource::System, |folder| LibrarySource::Beside(folder.to_owned()))
}
