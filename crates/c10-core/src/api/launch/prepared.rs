//! Launches that are checked once and repeated.
//!
//! What a kernel takes and which blocks it has do not change from call to call, so they are compared with its parameters and
//! limits once. What is left for each call is the grid, the buffers and the numbers.
//!
//! **Invariants:** as many buffers and words as the launch was prepared for are the kernel's parameters, where those are
//! known.
//!
//! # Safety
//! [`PreparedLaunch::launch`] passes the caller's promise on, as [`Kernel::launch`] does.
#![expect(unsafe_code, reason = "launches of kernels that are somebody else's")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::api::buffers::DeviceBuffer;
use crate::api::launch::{Function, Kernel, Launch, LaunchConfig, Loaded, MemoryAccess};
use crate::base::error::{Error, LaunchErrorKind, Result};
use crate::base::ids::RuntimeId;
use crate::driver::{Api, FunctionHandle, Shape, check_part};
use crate::runtime::Runtime;
use crate::thread::pending::PuttingOff;

/// The most buffers of a prepared launch: parameters of a kernel have 4096 bytes on every device.
const MOST_BUFFERS: usize = 511;

/// As many buffers as a launch passes without memory of its own.
const FEW: usize = 7;

/// A launch of a kernel over a row of blocks that is repeated with other buffers and numbers. The parameters are buffers,
/// then one block of 64-bit words. [`Self::over_rows`] launches several such rows.
///
/// Like [`crate::DetachedKernel`] it keeps the module loaded, but not the runtime alive.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Module, Runtime};
///
/// let runtime = Runtime::current();
/// # let text = ".version 7.8 .target sm_75 .address_size 64
/// #     .visible .entry nothing(.param .u64 a, .param .align 8 .b8 numbers[8]) { ret; }";
/// let prepared = Module::from_ptx(&runtime, 0, text)?.kernel("nothing")?.prepare([256, 1, 1], 1, 1)?;
/// let buffer = DeviceBuffer::new(1024, None)?;
/// // SAFETY: the kernel does nothing.
/// unsafe { prepared.launch(&runtime, 4, &[(&buffer, 0..1024)], &[1024])? };
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct PreparedLaunch {
    loaded: Arc<Loaded>,
    function: Arc<Function>,
    home: RuntimeId,
    block: [u32; 3],
    /// Rows of blocks: the second dimension of the grid.
    rows: u32,
    buffers: usize,
    words: usize,
    /// What the kernel does to each buffer.
    accesses: Box<[MemoryAccess]>,
}

impl Kernel {
    /// Prepares launches with these threads of a block, this many buffers, at most 511, and then this many words of 64
    /// bits. More than seven buffers cost each launch an allocation on the host.
    ///
    /// # Errors
    /// The device or the kernel does not take such blocks, or the parameters are others.
    pub fn prepare(&self, block: [u32; 3], buffers: usize, words: usize) -> Result<PreparedLaunch> {
        let (function, loaded) = (&self.function, &self.module.loaded);
        function.check_shape(&LaunchConfig { block, ..LaunchConfig::default() })?;
        if buffers > MOST_BUFFERS {
            return Err(function.refuse(LaunchErrorKind::ArgumentCount { expected: MOST_BUFFERS, found: buffers }));
        }
        let sizes: Vec<usize> = std::iter::repeat_n(8, buffers).chain([8 * words]).collect();
        function.check_sizes(sizes.into_iter())?;
        let (loaded, function) = (Arc::clone(loaded), Arc::clone(function));
        let accesses = vec![MemoryAccess::Undeclared; buffers].into_boxed_slice();
        Ok(PreparedLaunch {
            loaded,
            function,
            home: self.module.runtime.id(),
            block,
            rows: 1,
            buffers,
            words,
            accesses,
        })
    }
}

impl PreparedLaunch {
    /// The same launch with what the kernel does to the buffers, in their order; buffers without are undeclared.
    #[must_use]
    pub fn accessing(mut self, accesses: &[MemoryAccess]) -> Self {
        self.accesses.iter_mut().zip(accesses).for_each(|(declared, access)| *declared = *access);
        self
    }

    /// The same launch over several rows of blocks, which a kernel tells apart by the second dimension of its grid.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Module, Runtime};
    ///
    /// let runtime = Runtime::current();
    /// # let text = ".version 7.8 .target sm_75 .address_size 64
    /// #     .visible .entry nothing(.param .align 8 .b8 numbers[8]) { ret; }";
    /// let prepared = Module::from_ptx(&runtime, 0, text)?.kernel("nothing")?.prepare([256, 1, 1], 0, 1)?.over_rows(20)?;
    /// // SAFETY: the kernel does nothing.
    /// unsafe { prepared.launch(&runtime, 4, &[], &[1024])? };
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// There are none, or more than the device takes.
    pub fn over_rows(mut self, rows: u32) -> Result<Self> {
        self.rows = rows;
        self.function.check_shape(&self.config(1))?;
        Ok(self)
    }

    fn config(&self, grid: u32) -> LaunchConfig {
        LaunchConfig { grid: [grid, self.rows, 1], block: self.block, shared_bytes: 0 }
    }

    /// Whether the kernel is of this runtime.
    #[must_use]
    #[inline]
    pub fn is_of(&self, runtime: &Runtime) -> bool {
        self.home == runtime.id()
    }

    /// Queues the launch on the current stream of the kernel's device, with so many blocks in a row. Returns before it is done.
    /// Each buffer comes with the bytes that the kernel may use.
    ///
    /// # Safety
    /// - The duties of [`Kernel::launch`].
    ///
    /// # Errors
    /// As for [`Kernel::launch`].
    pub unsafe fn launch(
        &self,
        runtime: &Runtime,
        grid: u32,
        buffers: &[(&DeviceBuffer, Range<usize>)],
        words: &[u64],
    ) -> Result<()> {
        PuttingOff::settle("a kernel is launched");
        if !self.is_of(runtime) {
            return Err(Error::OtherRuntime { what: "kernel" });
        }
        let (function, device) = (&*self.function, self.loaded.device);
        self.check_counts(buffers.len(), words.len())?;
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let addresses = match few.get_mut(..buffers.len()) {
            Some(few) => few,
            None => {
                many.resize(buffers.len(), 0);
                many.as_mut_slice()
            }
        };
        for (address, (buffer, range)) in addresses.iter_mut().zip(buffers) {
            function.check_reach(runtime, device, buffer)?;
            check_part(range, buffer.len())?;
            *address = buffer.address() + range.start as u64;
        }
        if grid == 0 || grid > function.grid_limits[0] {
            function.check_shape(&self.config(grid))?;
        }
        let stream = runtime.streams().current_ref(device);
        let shape = Shape { grid: [grid, self.rows, 1], block: self.block, shared_bytes: 0 };
        let launch = Launch { runtime, loaded: &self.loaded, function };
        let addresses = &*addresses;
        // SAFETY: the parameters were compared with as many addresses and words, where they are known; the rest is the
        // caller's promise.
        let queue = |api: &Api, (handle, shape): (FunctionHandle, Shape), _| unsafe {
            api.launch_words(handle, shape, addresses, words, stream)
        };
        let uses = || {
            let of = |((buffer, range), access): (&(&DeviceBuffer, Range<usize>), &MemoryAccess)| {
                access.of_range(buffer.address(), range)
            };
            buffers.iter().zip(&*self.accesses).filter_map(of).collect()
        };
        launch.run(&shape, stream, buffers.iter().map(|(buffer, _)| *buffer), uses, queue)
    }

    #[inline]
    fn check_counts(&self, buffers: usize, words: usize) -> Result<()> {
        if buffers != self.buffers {
            let (expected, found) = (self.buffers + 1, buffers + 1);
            return Err(self.function.refuse(LaunchErrorKind::ArgumentCount { expected, found }));
        }
        if words != self.words {
            let (expected, found) = (8 * self.words, 8 * words);
            return Err(self.function.refuse(LaunchErrorKind::ArgumentSize { index: buffers, expected, found }));
        }
        Ok(())
    }
}

impl fmt::Debug for PreparedLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedLaunch").field("kernel", &self.function.name).field("block", &self.block).finish()
    }
}
