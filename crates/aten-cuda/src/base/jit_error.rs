//! What can go wrong with programs of the user's own: CUDA C++ that is compiled, and kernels made of it.
//!
//! Where torch has a text for it, the text is torch's.

use std::fmt;

use cuda_sys::{NvJitLinkError, NvrtcError};

/// Why a program of the user's own was not compiled, linked or launched.
///
/// ```
/// use aten_cuda::jiterator::create_jit_fn;
/// use aten_cuda::{Error, JitError};
///
/// // SAFETY: there is no function in the text.
/// let error = unsafe { create_jit_fn("int x;", &[]) }.unwrap_err();
/// assert!(matches!(error, Error::Jit(cause) if matches!(*cause, JitError::Parse { .. })));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// A library that compiles or links is not there.
    #[error("CUDA C++ is compiled by {library}, which is not there: {reason}")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// Where it was looked for, and what was found.
        reason: String,
    },
    /// The compiler refuses a text.
    #[error(transparent)]
    Compile(CompileError),
    /// A call of the compiler did not succeed, for another reason than its text.
    #[error("{cause}{}", Log(.log))]
    Compiler {
        /// What the compiler said, with the function's name.
        #[source]
        cause: NvrtcError,
        /// Its log; empty where it wrote none.
        log: String,
    },
    /// A call of nvJitLink did not succeed.
    #[error("{cause}{}", Log(.log))]
    Linker {
        /// What the linker said, with the function's name.
        #[source]
        cause: NvJitLinkError,
        /// Its log; empty where it wrote none.
        log: String,
    },
    /// A text, a name or an option has a zero byte inside.
    #[error("{what} holds a zero byte")]
    ZeroByte {
        /// What has it.
        what: &'static str,
    },
    /// The compiler makes no code for a device.
    #[error("NVRTC {nvrtc} makes no code for devices of compute capability {}.{}; it knows {known:?}", .capability.0, .capability.1)]
    Architecture {
        /// The device's compute capability.
        capability: (i32, i32),
        /// The compiler's version.
        nvrtc: String,
        /// The architectures that it knows, as 10 * major + minor.
        known: Vec<u32>,
    },
    /// A compute capability is not one.
    #[error("Invalid compute capability '{given}': expected digits such as '90' or '90a'")]
    Capability {
        /// What was given.
        given: String,
    },
    /// The text of an elementwise function is not one.
    #[error("Couldn't parse code, please check correctness:\n {code}")]
    Parse {
        /// The text.
        code: String,
    },
    /// A function that returns its result cannot have several.
    #[error("Return by value only works for single output. ")]
    SingleOutput,
    /// The text has more or fewer outputs than the kernel can write.
    #[error("jiterator only supports 1 to {most} outputs, but got {outputs}")]
    Outputs {
        /// How many were asked for.
        outputs: usize,
        /// The most.
        most: usize,
    },
    /// There is no device.
    #[error("Jiterator is only supported on CUDA and ROCm GPUs, none are available.")]
    NoDevice,
    /// Too many tensors.
    #[error("jiterator only supports up to 8 tensor inputs.")]
    Inputs,
    /// No tensor was given.
    #[error("jiterator needs at least one tensor input")]
    NoInput,
    /// A number by a name that the function was not made with.
    #[error("{name} is not declared in function definition")]
    NotDeclared {
        /// The name.
        name: String,
    },
    /// A number was declared twice.
    #[error("{name} is declared twice in function definition")]
    DeclaredTwice {
        /// The name.
        name: String,
    },
    /// Something that is no tensor among those.
    #[error("{index} of input tensors tuple is not a Tensor")]
    NotATensor {
        /// Its place.
        index: usize,
    },
    /// A tensor on the host.
    #[error("Expected all tensors to be on the same device, but found at least two devices, {device} and {other}!")]
    Devices {
        /// Where the function works.
        device: c10_core::Device,
        /// Where another tensor is.
        other: c10_core::Device,
    },
    /// No tensor is on a device.
    #[error("Jiterator is only supported on CUDA tensors, but the inputs are on {device}")]
    OnHost {
        /// Where they are.
        device: c10_core::Device,
    },
    /// The function is not there for a dtype.
    #[error("Jiterator does not support {dtype}")]
    DType {
        /// The dtype.
        dtype: crate::base::dtype::DType,
    },
    /// A kernel does not take such arguments.
    #[error("Unsupported argument type: {given}")]
    Argument {
        /// What was given.
        given: String,
    },
    /// A number does not fit into the 32 bits of a kernel's `int`.
    #[error("the argument {value} does not fit into a C int; pass a Rust number of the parameter's type")]
    IntRange {
        /// The number.
        value: i64,
    },
    /// A tensor that the device cannot read.
    #[error("All tensor arguments must be CUDA tensors or pinned CPU tensors")]
    NotOnDevice,
    /// More shared memory than a block of the device can have.
    #[error("Requested shared memory ({asked} bytes) exceeds device limit ({limit} bytes)")]
    SharedMemory {
        /// What was asked for, in bytes.
        asked: u32,
        /// What a block can have, in bytes.
        limit: u32,
    },
    /// Conditions of `CUDA_KERNEL_ASSERT2` did not hold on a device.
    #[error(transparent)]
    Assertions(DeviceAssertions),
    /// There is nothing to link.
    #[error("there is nothing to link")]
    NothingToLink,
}

struct Log<'a>(&'a str);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n{}", self.0) }
    }
}

/// The compiler refuses a text: its log, and the text that it refers to.
///
/// `Display` is torch's text with the compiler's log; [`Self::marked`] shows the lines that the log is about.
///
/// ```
/// use aten_cuda::CompileError;
///
/// let error = CompileError {
///     name: "kernel.cu".to_owned(),
///     source: "__global__ void f() {\n    g();\n}".to_owned(),
///     log: "kernel.cu(2): error: identifier \"g\" is undefined".to_owned(),
///     options: Vec::new(),
/// };
/// assert!(error.to_string().starts_with("Kernel compilation failed:\nkernel.cu(2): error"));
/// assert!(error.marked().contains("> 2 |     g();"));
/// assert_eq!(error.messages()[0].line, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The name that the compiler was given for the text.
    pub name: String,
    /// The text.
    pub source: String,
    /// What the compiler wrote.
    pub log: String,
    /// The options that the compiler was given.
    pub options: Vec<String>,
}

/// What the compiler says of one line of a text.
///
/// ```
/// # let error = aten_cuda::CompileError {
/// #     name: "a.cu".into(), source: "x".into(), log: "a.cu(1): warning #1-D: odd".into(), options: vec![],
/// # };
/// let message = &error.messages()[0];
/// assert_eq!((message.line, message.is_error, message.text.as_str()), (1, false, "warning #1-D: odd"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileMessage {
    /// The line, counted from 1.
    pub line: usize,
    /// Whether it is an error, else a warning or a remark.
    pub is_error: bool,
    /// What is said, without the place.
    pub text: String,
}

/// Lines shown before and after one that the log is about.
const AROUND: usize = 2;

impl CompileError {
    /// What the compiler says of lines of this text, in its order; what it says of other files is left out.
    #[must_use]
    pub fn messages(&self) -> Vec<CompileMessage> {
        self.log.lines().filter_map(|line| self.message(line)).collect()
    }

    /// A line of the log such as `name(12): error: text`.
    fn message(&self, line: &str) -> Option<CompileMessage> {
        let rest = line.strip_prefix(self.name.as_str())?.strip_prefix('(')?;
        let (number, text) = rest.split_once("):")?;
        let text = text.trim().to_owned();
        Some(CompileMessage { line: number.parse().ok()?, is_error: text.contains("error"), text })
    }

    /// The log with the lines that it is about: each message with its line marked by `>` and those around it.
    #[must_use]
    pub fn marked(&self) -> String {
        let lines: Vec<&str> = self.source.lines().collect();
        let width = lines.len().to_string().len();
        let mut text = String::new();
        for message in self.messages() {
            text.push_str(&format!("{}:{}: {}\n", self.name, message.line, message.text));
            let first = message.line.saturating_sub(AROUND + 1);
            for (at, line) in lines.iter().enumerate().take(message.line + AROUND).skip(first) {
                let mark = if at + 1 == message.line { '>' } else { ' ' };
                text.push_str(&format!("{mark} {:width$} | {line}\n", at + 1));
            }
        }
        if text.is_empty() { self.log.clone() } else { text }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel compilation failed:\n{}", self.log)
    }
}

impl std::error::Error for CompileError {}

/// Conditions in kernels that did not hold on a device, as they are reported with `PYTORCH_USE_CUDA_DSA`.
///
/// ```
/// use aten_cuda::{DeviceAssertion, DeviceAssertions};
///
/// let failure = DeviceAssertion {
///     message: "at < count".into(), function: "f".into(), kernel: "f".into(), line: 3, block: [1, 0, 0], thread: [2, 0, 0],
/// };
/// let text = DeviceAssertions { device: 0, count: 1, failures: vec![failure] }.to_string();
/// assert!(text.starts_with("CUDA device-side assertion failures were found on GPU #0!"));
/// assert!(text.contains("Thread ID that failed assertion = [2,0,0]"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAssertions {
    /// The device.
    pub device: c10_core::DeviceIndex,
    /// How many threads have found that a condition does not hold.
    pub count: u32,
    /// The first of them, at most 10.
    pub failures: Vec<DeviceAssertion>,
}

/// A condition that did not hold for a thread.
///
/// ```
/// # let (block, thread) = ([0; 3], [7, 0, 0]);
/// let failure = aten_cuda::DeviceAssertion {
///     message: "x > 0".into(), function: "g".into(), kernel: "f".into(), line: 12, block, thread,
/// };
/// assert_eq!((failure.line, failure.thread), (12, [7, 0, 0]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAssertion {
    /// The condition, as it stands in the text; its first 127 signs.
    pub message: String,
    /// The function that it stands in.
    pub function: String,
    /// What the kernel was compiled as.
    pub kernel: String,
    /// The line of the text, counted from 1.
    pub line: u32,
    /// The thread's block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
}

impl fmt::Display for DeviceAssertions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device;
        write!(f, "CUDA device-side assertion failures were found on GPU #{device}!")?;
        if self.count as usize > self.failures.len() {
            let (count, shown) = (self.count, self.failures.len());
            write!(f, "\nA failure was detected in {count} places; only the first {shown} are shown.")?;
        }
        for (at, failure) in self.failures.iter().enumerate() {
            let DeviceAssertion { message, function, kernel, line, block, thread } = failure;
            write!(f, "\nAssertion failure {at}")?;
            write!(f, "\n  GPU assertion failure message = {message}")?;
            write!(f, "\n  Line number of assertion = {line}")?;
            write!(f, "\n  Device function containing assertion = {function}")?;
            write!(f, "\n  Thread ID that failed assertion = [{},{},{}]", thread[0], thread[1], thread[2])?;
            write!(f, "\n  Block ID that failed assertion = [{},{},{}]", block[0], block[1], block[2])?;
            write!(f, "\n  Device that launched kernel = {device}")?;
            write!(f, "\n  Name of kernel launched that led to failure = {kernel}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DeviceAssertions {}
