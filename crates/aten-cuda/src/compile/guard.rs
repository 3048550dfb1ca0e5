//! What a compiled program takes for granted, and how a call differs from it.
//!
//! A [`Call`] gives what is compared of it as numbers, one after another. Its [`Key`] has them, so that a program is found by
//! comparing or hashing numbers. [`Guards`] keep the same facts apart, to say in words which one differed.
//!
//! **Invariants:** a program whose guards hold would be traced into the same graph again, as far as its function depends on
//! its arguments and on the switches that are listed here. Keys are equal exactly where no guard fails.

use std::fmt;
use std::hash::{Hash, Hasher};

use c10_core::{Device, DeviceIndex, DeviceType, Runtime};
use smallvec::SmallVec;

use crate::attention::{AttentionSettings, SdpKernels};
use crate::autocast::AutocastState;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::blas::{self, ProductSettings};
use crate::deterministic;
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Switches {
    device: DeviceIndex,
    stream: i64,
    deterministic: u8,
    products: ProductSettings,
    attention: AttentionSettings,
    autocast: AutocastState,
}

/// What is compared of a call, as numbers: two calls with equal keys are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(SmallVec<[i64; 32]>);

impl Hash for Key {
    /// The numbers are folded first, so that they cost the hasher one round.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let fold =
            |all: u64, &word: &i64| (all.rotate_left(5) ^ word.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hasher.write_u64(self.0.iter().fold(0, fold));
    }
}

/// A call as guards see it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    arguments: &'a [&'a Tensor],
    switches: Switches,
    /// The current stream of the first argument's device.
    stream: i64,
    /// For each argument the first one of the same storage, where there are many; else it is looked for when it is asked for.
    aliases: Vec<usize>,
}

impl<'a> Call<'a> {
    /// A call with these arguments.
    pub(super) fn new(runtime: &Runtime, arguments: &'a [&'a Tensor]) -> Result<Self> {
        let switches = Switches::of(runtime)?;
        let stream = stream_of(runtime, arguments, &switches)?;
        Ok(Self { arguments, switches, stream, aliases: aliases(arguments) })
    }

    /// Whether the key is that of this call. Nothing is written down to find out.
    pub(super) fn has(&self, key: &Key) -> bool {
        let mut rest = &*key.0;
        let is_next = |words: &[i64]| {
            let Some((next, more)) = rest.split_at_checked(words.len()) else { return false };
            rest = more;
            next.iter().zip(words).all(|(known, word)| known == word)
        };
        self.each(is_next) && rest.is_empty()
    }

    /// The key of the call.
    pub(super) fn key(&self) -> Key {
        let mut words = SmallVec::new();
        self.each(|own| {
            words.extend_from_slice(own);
            true
        });
        Key(words)
    }

    /// Gives what is compared of the call as numbers, some at a time, for as long as they are taken.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is taken has few words, whose number is known here")]
    fn each(&self, mut take: impl FnMut(&[i64]) -> bool) -> bool {
        take(&[self.switches.packed(), self.switches.stream, self.stream])
            && self.arguments.iter().enumerate().all(|(at, tensor)| {
                take(&[packed(tensor, self.alias(at)), tensor.storage_offset()])
                    && take(tensor.sizes())
                    && take(tensor.strides())
            })
    }

    /// The first argument of the same storage as this one.
    #[inline]
    fn alias(&self, at: usize) -> usize {
        self.aliases.get(at).copied().unwrap_or_else(|| first_of(self.arguments, at))
    }
}

/// What is compared of an argument besides its sizes, strides and offset.
fn packed(tensor: &Tensor, alias: usize) -> i64 {
    let Device { kind, index } = tensor.device();
    let device = i64::from(kind == DeviceType::Cuda) << 8 | i64::from(index.unwrap_or(-1) & 0xff);
    let Signs { is_conj, is_neg } = tensor.signs();
    let signs = i64::from(is_conj) | i64::from(is_neg) << 1;
    // Ranks and numbers of arguments do not come near these widths.
    let (rank, alias) = (tensor.dim() as i64, alias as i64);
    let alignment = (tensor.alignment() % 16).cast_signed();
    tensor.dtype() as i64 | signs << 8 | alignment << 10 | device << 14 | rank << 23 | alias << 39
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
    /// The state of a call.
    pub(super) fn new(call: &Call<'_>) -> Self {
        let own = |(at, tensor): (usize, &&Tensor)| Argument {
            dtype: tensor.dtype(),
            device: tensor.device(),
            sizes: tensor.sizes().into(),
            strides: tensor.strides().into(),
            offset: tensor.storage_offset(),
            signs: tensor.signs(),
            alignment: tensor.alignment() % 16,
            alias: call.alias(at),
        };
        let arguments = call.arguments.iter().enumerate().map(own).collect();
        Self { switches: call.switches, arguments, stream: call.stream }
    }

    /// Whether a call differs from this one at most in how its arguments lie in memory, with as many dimensions: in sizes,
    /// strides, offsets and alignment.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let fits = |(first, second): (&Argument, &Argument)| {
            first.dtype == second.dtype
                && first.sizes.len() == second.sizes.len()
                && first.signs == second.signs
                && first.device == second.device
                && first.alias == second.alias
        };
        self.arguments.len() == other.arguments.len()
            && self.arguments.iter().zip(&other.arguments).all(fits)
            && (&self.switches, self.stream) == (&other.switches, other.stream)
    }

    /// Whether two arguments are parts of one memory.
    pub(super) fn has_aliases(&self) -> bool {
        self.arguments.iter().enumerate().any(|(at, own)| own.alias != at)
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
                compiled: stream_name(self.stream),
                given: stream_name(now.stream),
            })
        };
        pairs
            .find_map(|(at, (own, other))| own.failure(other, at))
            .or_else(|| self.switches.failure(&now.switches))
            .or_else(stream)
    }
}

/// The current stream of the first argument's device; 0 without arguments on one.
fn stream_of(runtime: &Runtime, arguments: &[&Tensor], switches: &Switches) -> Result<i64> {
    match arguments.iter().find_map(|tensor| tensor.device().index) {
        Some(device) if device == switches.device => Ok(switches.stream),
        Some(device) => Ok(runtime.streams().current_id(device)?.0),
        None => Ok(0),
    }
}

/// The first argument of the same storage as one of them.
#[inline]
fn first_of(arguments: &[&Tensor], at: usize) -> usize {
    let storage = arguments[at].storage();
    arguments[..at].iter().position(|other| other.storage().is_same(storage)).unwrap_or(at)
}

/// Arguments that are compared each with all others to find those of one storage.
const FEW: usize = 8;

/// For each argument the first one of the same storage, where there are more than a few.
fn aliases(arguments: &[&Tensor]) -> Vec<usize> {
    if arguments.len() <= FEW {
        return Vec::new();
    }
    // A bit for each remainder of an address: where it is not set, no argument before is of the same memory.
    let mut seen = [0_u64; 64];
    let mut aliases = Vec::with_capacity(arguments.len());
    for (at, tensor) in arguments.iter().enumerate() {
        let storage = tensor.storage();
        let address = storage.present().map_or_else(|| storage.data_ptr(), c10_core::DeviceBuffer::address);
        let place = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let (word, bit) = (&mut seen[(place >> 6) as usize], 1 << (place & 63));
        aliases.push(if *word & bit == 0 { at } else { first_of(arguments, at) });
        *word |= bit;
    }
    aliases
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
        Runtime::with_current(Self::of)
    }

    fn of(runtime: &Runtime) -> Result<Self> {
        let device = runtime.current_device()?;
        Ok(Self {
            device,
            stream: runtime.streams().current_id(device)?.0,
            deterministic: deterministic::settings(),
            products: blas::product_settings(),
            attention: AttentionSettings::of(runtime),
            autocast: AutocastState::current(),
        })
    }

    /// Everything but the stream.
    fn packed(&self) -> i64 {
        let Self { device, stream: _, deterministic, products, attention, autocast } = *self;
        let AttentionSettings { kernels, half_sums } = attention;
        let SdpKernels { enable_flash, enable_math, enable_mem_efficient, enable_cudnn } = kernels;
        let kernels = [enable_flash, enable_math, enable_mem_efficient, enable_cudnn];
        let kernels = kernels.into_iter().fold(0, |bits, is_on| bits << 1 | i64::from(is_on));
        let AutocastState { cuda, cpu, cache_enabled } = autocast;
        let dtype = |dtype: Option<DType>| dtype.map_or(0, |dtype| 1 + dtype as i64);
        let device = i64::from(device & 0xff);
        device
            | i64::from(deterministic) << 8
            | kernels << 24
            | i64::from(cache_enabled) << 28
            | i64::from(half_sums) << 29
            | dtype(cuda) << 32
            | dtype(cpu) << 40
            | i64::from(products.bits()) << 48
    }

    fn failure(&self, now: &Self) -> Option<GuardFailure> {
        let differing = self.named().into_iter().zip(now.named()).find(|(compiled, given)| compiled.1 != given.1);
        differing.map(|((name, compiled), (_, given))| GuardFailure::Switch { name, compiled, given })
    }

    /// Each setting and what it says, in words.
    fn named(&self) -> Vec<(&'static str, String)> {
        let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let cast = |dtype: Option<DType>| dtype.map_or_else(|| "off".to_owned(), |dtype| format!("to {dtype}"));
        let SdpKernels { enable_flash, enable_math, enable_mem_efficient, enable_cudnn } = self.attention.kernels;
        let own = [
            ("the current device", self.device.to_string()),
            ("the current stream", stream_name(self.stream)),
            ("the mode of deterministic algorithms", deterministic::described(self.deterministic)),
            ("autocast on CUDA devices", cast(self.autocast.cuda)),
            ("autocast on the host", cast(self.autocast.cpu)),
            ("the cache of autocast", on(self.autocast.cache_enabled)),
            ("the fused kernel of attention", on(enable_flash)),
            ("attention made of operations", on(enable_math)),
            ("the memory-efficient kernel of attention", on(enable_mem_efficient)),
            ("cuDNN's kernel of attention", on(enable_cudnn)),
            ("attention in 16 bits", on(self.attention.half_sums)),
        ];
        own.into_iter().chain(self.products.named()).collect()
    }
}

fn stream_name(id: i64) -> String {
    if id == 0 { "the default stream".to_owned() } else { format!("stream {id:#x}") }
}
