//! What a compiled program takes for granted, and how a call differs from it.
//!
//! **Invariant:** a program whose guards hold would be traced into the same graph again, as far as its function depends on
//! its arguments and on the switches that are listed here.

use std::collections::HashMap;
use std::fmt;

use c10_core::{Device, DeviceIndex, Runtime};
use smallvec::SmallVec;

use crate::attention::SdpKernels;
use crate::autocast::AutocastState;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::blas::{self, ProductSettings};
use crate::deterministic;
use crate::storage::Storage;
use crate::tensor::{Signs, Tensor};

/// The state of a call that a program was compiled for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Guards {
    switches: Switches,
    arguments: Vec<Argument>,
    /// The current stream of the first argument's device.
    stream: i64,
}

/// What an argument is like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    dtype: DType,
    device: Device,
    sizes: Dims,
    strides: Dims,
    offset: i64,
    signs: Signs,
    /// Where the first element begins, counted from a multiple of 16 bytes.
    alignment: u64,
    /// The first argument of the same storage.
    alias: usize,
}

/// Settings of the process and the thread that operations depend on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Switches {
    device: DeviceIndex,
    stream: i64,
    deterministic: u8,
    products: ProductSettings,
    attention: SdpKernels,
    autocast: AutocastState,
}

/// How a call differs from the one that a program was compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardFailure {
    /// Another number of arguments.
    Arguments {
        /// Then.
        compiled: usize,
        /// Now.
        given: usize,
    },
    /// An argument's property.
    Argument {
        /// Which argument, from 0.
        argument: usize,
        /// The property, in torch's word, such as `dtype`.
        property: &'static str,
        /// Then.
        compiled: String,
        /// Now.
        given: String,
    },
    /// A setting.
    Switch {
        /// Its name.
        name: &'static str,
        /// Then.
        compiled: String,
        /// Now.
        given: String,
    },
}

impl fmt::Display for GuardFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments { compiled, given } => {
                write!(f, "the function was compiled for {compiled} arguments and got {given}")
            }
            Self::Argument { argument, property, compiled, given } => {
                write!(f, "{property} of argument {argument} was {compiled} and is {given}")
            }
            Self::Switch { name, compiled, given } => write!(f, "{name} was {compiled} and is {given}"),
        }
    }
}

impl Guards {
    /// The state of a call with these arguments.
    pub(super) fn new(arguments: &[&Tensor]) -> Result<Self> {
        let aliases = aliases(arguments);
        let own = |(at, tensor): (usize, &&Tensor)| Argument {
            dtype: tensor.dtype(),
            device: tensor.device(),
            sizes: tensor.sizes().into(),
            strides: tensor.strides().into(),
            offset: tensor.storage_offset(),
            signs: tensor.signs(),
            alignment: tensor.alignment() % 16,
            alias: aliases[at],
        };
        let (switches, stream) = (Switches::now()?, stream_of(arguments)?);
        Ok(Self { switches, arguments: arguments.iter().enumerate().map(own).collect(), stream })
    }

    /// Whether two arguments are parts of one memory.
    pub(super) fn has_aliases(&self) -> bool {
        self.arguments.iter().enumerate().any(|(at, own)| own.alias != at)
    }

    /// Whether a call is like this one.
    pub(super) fn hold(&self, arguments: &[&Tensor]) -> Result<bool> {
        let fits = |(own, tensor): (&Argument, &&Tensor)| {
            own.dtype == tensor.dtype()
                && own.sizes.as_slice() == tensor.sizes()
                && own.strides.as_slice() == tensor.strides()
                && own.offset == tensor.storage_offset()
                && own.signs == tensor.signs()
                && own.device == tensor.device()
                && own.alignment == tensor.alignment() % 16
        };
        Ok(self.arguments.len() == arguments.len()
            && self.arguments.iter().zip(arguments).all(fits)
            && aliases(arguments).into_iter().eq(self.arguments.iter().map(|own| own.alias))
            && self.switches == Switches::now()?
            && self.stream == stream_of(arguments)?)
    }

    /// The first difference of a call from this one.
    pub(super) fn failure(&self, now: &Self) -> Option<GuardFailure> {
        if self.arguments.len() != now.arguments.len() {
            let (compiled, given) = (self.arguments.len(), now.arguments.len());
            return Some(GuardFailure::Arguments { compiled, given });
        }
        let mut pairs = self.arguments.iter().zip(&now.arguments).enumerate();
        let stream = || {
            (self.stream != now.stream).then(|| GuardFailure::Switch {
                name: "the current stream of the arguments' device",
                compiled: format!("{:#x}", self.stream),
                given: format!("{:#x}", now.stream),
            })
        };
        pairs
            .find_map(|(at, (own, other))| own.failure(other, at))
            .or_else(|| self.switches.failure(&now.switches))
            .or_else(stream)
    }
}

/// The current stream of the first argument's device; 0 without arguments on one.
fn stream_of(arguments: &[&Tensor]) -> Result<i64> {
    match arguments.iter().find_map(|tensor| tensor.device().index) {
        Some(device) => Ok(Runtime::with_current(|runtime| runtime.streams().current(device))?.stream_id().0),
        None => Ok(0),
    }
}

/// For each argument the first one of the same storage.
fn aliases(arguments: &[&Tensor]) -> SmallVec<[usize; 8]> {
    let is_same = |first: &Storage, second: &Storage| first.is_same(second);
    if arguments.len() <= 8 {
        let first = |(at, tensor): (usize, &&Tensor)| {
            arguments[..at].iter().position(|other| is_same(other.storage(), tensor.storage())).unwrap_or(at)
        };
        return arguments.iter().enumerate().map(first).collect();
    }
    let mut seen: HashMap<(u64, Option<DeviceIndex>), usize> = HashMap::with_capacity(arguments.len());
    let name = |tensor: &Tensor| match tensor.storage().present() {
        Some(buffer) => (buffer.address(), Some(buffer.device_index())),
        None => (tensor.storage().data_ptr(), None),
    };
    arguments.iter().enumerate().map(|(at, tensor)| *seen.entry(name(tensor)).or_insert(at)).collect()
}

impl Argument {
    fn failure(&self, now: &Self, argument: usize) -> Option<GuardFailure> {
        let pairs: [(&'static str, String, String); 8] = [
            ("dtype", self.dtype.to_string(), now.dtype.to_string()),
            ("device", self.device.to_string(), now.device.to_string()),
            ("size", format!("{:?}", self.sizes), format!("{:?}", now.sizes)),
            ("stride", format!("{:?}", self.strides), format!("{:?}", now.strides)),
            ("storage_offset", self.offset.to_string(), now.offset.to_string()),
            ("conjugate or negative bit", format!("{:?}", self.signs), format!("{:?}", now.signs)),
            ("alignment", self.alignment.to_string(), now.alignment.to_string()),
            ("aliasing", alias(self.alias, argument), alias(now.alias, argument)),
        ];
        let differing = pairs.into_iter().find(|(_, compiled, given)| compiled != given);
        differing.map(|(property, compiled, given)| GuardFailure::Argument { argument, property, compiled, given })
    }
}

fn alias(first: usize, own: usize) -> String {
    if first == own { "none".to_owned() } else { format!("memory of argument {first}") }
}

impl Switches {
    pub(super) fn now() -> Result<Self> {
        let (device, stream) = Runtime::with_current(|runtime| {
            let device = runtime.current_device()?;
            Ok::<_, c10_core::Error>((device, runtime.streams().current(device)?.stream_id().0))
        })?;
        Ok(Self {
            device,
            stream,
            deterministic: deterministic::settings(),
            products: blas::product_settings(),
            attention: SdpKernels::current(),
            autocast: AutocastState::current(),
        })
    }

    fn failure(&self, now: &Self) -> Option<GuardFailure> {
        let pairs: [(&'static str, String, String); 6] = [
            ("the current device", self.device.to_string(), now.device.to_string()),
            ("the current stream", format!("{:#x}", self.stream), format!("{:#x}", now.stream)),
            (
                "the mode of deterministic algorithms",
                format!("{:?}", self.deterministic),
                format!("{:?}", now.deterministic),
            ),
            ("the precision of products", format!("{:?}", self.products), format!("{:?}", now.products)),
            ("autocast", format!("{:?}", self.autocast), format!("{:?}", now.autocast)),
            ("the kernels of attention", format!("{:?}", self.attention), format!("{:?}", now.attention)),
        ];
        let differing = pairs.into_iter().find(|(_, compiled, given)| compiled != given);
        differing.map(|(name, compiled, given)| GuardFailure::Switch { name, compiled, given })
    }
}
