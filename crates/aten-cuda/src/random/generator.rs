//! Generators of random numbers, of CUDA devices and of the host.

use std::sync::Arc;

use c10_core::{Device, DeviceArg, DeviceError, DeviceType, GeneratorState};

use crate::base::error::{Error, Result};
use crate::base::random_error::RandomError;
use crate::random::device::DeviceGenerator;
use crate::random::host::HostGenerator;
use crate::tensor::Tensor;

/// A generator of random numbers of a CUDA device or of the host (`torch.Generator`).
///
/// This is a handle: clones are the same generator. Functions that take `Option<&Generator>` draw from the default
/// generator of the tensor's device where there is none.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Generator, Tensor};
///
/// let generator = Generator::new(None)?;
/// assert_eq!((generator.initial_seed()?, generator.get_offset()?), (67280421310721, 0));
/// generator.manual_seed(0)?;
/// let drawn = Tensor::rand(&[2], DType::F32, "cuda", Some(&generator))?;
/// assert_eq!(drawn.to_vec::<f32>()?, [0.39904648, 0.51667917]);
/// assert_eq!(generator.get_offset()?, 4);
///
/// let host = Generator::new("cpu")?;
/// host.manual_seed(0)?;
/// assert_eq!(Tensor::rand(&[2], DType::F32, "cpu", Some(&host))?.to_vec::<f32>()?, [0.49625659, 0.7682218]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Generator(pub(super) Kind);

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Device(DeviceGenerator),
    Host(HostGenerator),
}

impl Generator {
    /// A generator of a device, the current one for `None` and the host's for `"cpu"`, with torch's default seed.
    ///
    /// # Errors
    /// The runtime cannot start, or there is no such device ([`RandomError::DeviceIndex`]).
    pub fn new(device: impl DeviceArg) -> Result<Self> {
        match device.index() {
            Ok(index) => Ok(Self(Kind::Device(DeviceGenerator::new(index)?))),
            Err(c10_core::Error::Device(DeviceError::NotCuda { device })) if device.kind == DeviceType::Cpu => {
                Ok(Self(Kind::Host(HostGenerator::default())))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The device whose numbers it draws (`device`).
    #[must_use]
    pub fn device(&self) -> Device {
        match &self.0 {
            Kind::Device(generator) => generator.device(),
            Kind::Host(_) => Device { kind: DeviceType::Cpu, index: None },
        }
    }

    /// Seeds it and goes back to the begin of the sequence (`manual_seed`). Negative seeds count from 2^64 down. The host's
    /// generator uses the low 32 bits.
    ///
    /// # Errors
    /// The seed has more than 64 bits, or the current stream of its device captures and the seed is another one.
    pub fn manual_seed(&self, seed: impl Into<i128>) -> Result<&Self> {
        match &self.0 {
            Kind::Device(generator) => generator.manual_seed(seed).map(drop)?,
            Kind::Host(generator) => generator.manual_seed(seed.into())?,
        }
        Ok(self)
    }

    /// Seeds it with a number that nobody can foresee, of up to 53 bits, and returns that (`seed`).
    ///
    /// # Errors
    /// The current stream of its device captures.
    pub fn seed(&self) -> Result<u64> {
        match &self.0 {
            Kind::Device(generator) => generator.seed(),
            Kind::Host(generator) => Ok(generator.seed()),
        }
    }

    /// The seed (`initial_seed`).
    ///
    /// # Errors
    /// The current stream of its device captures.
    pub fn initial_seed(&self) -> Result<u64> {
        match &self.0 {
            Kind::Device(generator) => generator.initial_seed(),
            Kind::Host(generator) => Ok(generator.initial_seed()),
        }
    }

    /// How many words of each thread's sequence were drawn (`get_offset`).
    ///
    /// # Errors
    /// The current stream captures, or the generator is the host's, which has none.
    pub fn get_offset(&self) -> Result<u64> {
        self.on_device("CPU Generator does not use offset")?.get_offset()
    }

    /// Goes to another place of the sequence (`set_offset`).
    ///
    /// # Errors
    /// The offset is no multiple of 4, the current stream captures, or the generator is the host's, which has none.
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        self.on_device("CPU Generator does not use offset")?.set_offset(offset)
    }

    /// The state as a host tensor of bytes (`get_state`): of a CUDA device's generator 16, the seed and then the offset,
    /// both little-endian; of the host's 5,056, which are torch's.
    ///
    /// # Errors
    /// The current stream of its device captures.
    pub fn get_state(&self) -> Result<Tensor> {
        match &self.0 {
            Kind::Device(generator) => generator.get_state(),
            Kind::Host(generator) => generator.get_state(),
        }
    }

    /// Goes back to a state that [`Self::get_state`] gave (`set_state`). For a CUDA device's generator one of 8 bytes is a
    /// seed with offset 0.
    ///
    /// # Errors
    /// The state is no contiguous host tensor of bytes, has another size, is none that such a generator can have, or the
    /// current stream of its device captures.
    pub fn set_state(&self, state: &Tensor) -> Result<()> {
        match &self.0 {
            Kind::Device(generator) => generator.set_state(state),
            Kind::Host(generator) => generator.set_state(state),
        }
    }

    /// Another generator that starts from the present state (`clone_state`).
    ///
    /// # Errors
    /// The current stream of its device captures.
    pub fn clone_state(&self) -> Result<Self> {
        Ok(Self(match &self.0 {
            Kind::Device(generator) => Kind::Device(generator.clone_state()?),
            Kind::Host(generator) => Kind::Host(generator.clone_state()),
        }))
    }

    /// Another generator that shares this one's state (`graphsafe_get_state`).
    ///
    /// # Errors
    /// The generator is the host's.
    pub fn graphsafe_get_state(&self) -> Result<Self> {
        let generator = self.on_device("graphsafe_get_state is not supported in this Generator")?;
        Ok(Self(Kind::Device(generator.graphsafe_get_state())))
    }

    /// Takes another generator's state, which both share from then on (`graphsafe_set_state`).
    ///
    /// # Errors
    /// One of the generators is the host's.
    pub fn graphsafe_set_state(&self, other: &Self) -> Result<()> {
        let text = "graphsafe_set_state is not supported in this Generator";
        self.on_device(text)?.graphsafe_set_state(other.on_device(text)?);
        Ok(())
    }

    /// What [`CUDAGraph::register_generator_state`](c10_core::CUDAGraph::register_generator_state) takes, so that the
    /// graph's work can draw from this generator. The default generators need it not: a capture that draws from one
    /// registers it. Graphs that share a generator are replayed one after another.
    ///
    /// # Errors
    /// There is no memory for the state on the device, the current stream captures, or the generator is the host's.
    pub fn graph_state(&self) -> Result<Arc<dyn GeneratorState>> {
        self.on_device("register_generator_state: a graph draws from generators of CUDA devices only")?.graph_state()
    }

    /// The generator of a CUDA device, or an error with this text.
    fn on_device(&self, text: &'static str) -> Result<&DeviceGenerator> {
        match &self.0 {
            Kind::Device(generator) => Ok(generator),
            Kind::Host(_) => Err(Error::Random(RandomError::Parameter(text.to_owned()))),
        }
    }
}
