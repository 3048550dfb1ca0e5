//! The caching allocator's configuration: text is parsed once, here, into a checked structure.
//!
//! Reading order: `raw` (the text as typed), this file (what it means), `error`, `text` (a configuration as text).
//!
//! **Invariants:** a parsed [`AllocatorConfig`] is within the limits of every option; a text that is refused changes
//! nothing. Sizes stay below 2^60 bytes, where requests end anyway, so that sums of two of them cannot overflow.

mod error;
mod raw;
mod text;

use std::fmt;

pub use error::{ConfigError, EnvironmentError};
use raw::{Setting, Value, Word};

const MIB: u64 = 1 << 20;

/// Larger sizes are read as this one: no request is as large.
const SIZE_MAX_BYTES: u64 = 1 << 60;

/// `large_segment_size_mb` must be above this.
const LARGE_SEGMENT_OVER_MIB: u64 = 10;

/// Most threads that pin memory.
const REGISTER_THREADS_MAX: u32 = 128;

/// Entries of the table of roundup divisions: one for each power of two from 1 MiB to 32 GiB.
pub const ROUNDUP_ENTRIES: usize = 16;

/// Environment variables with configuration text; the first one that is set counts.
const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Who decides about device memory.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Backend, Runtime};
///
/// let backend = Runtime::current().memory().config().backend;
/// assert_eq!((backend, backend.to_string()), (Backend::Native, "native".to_owned()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Backend {
    /// The caching allocator of this crate.
    #[default]
    Native,
    /// The same, in address ranges whose pages move to where they are needed: memory is asked of the driver only when no
    /// whole page is free, on any stream. Needs a driver and devices with virtual memory management.
    Elastic,
    /// The driver's own pools of stream-ordered memory, by torch's rules. Options of the caching allocator have no effect.
    CudaMallocAsync,
}

impl Backend {
    /// The name that `backend:` and torch's `get_allocator_backend` use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Elastic => "elastic",
            Self::CudaMallocAsync => "cudaMallocAsync",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Every option of the caching allocators, as one of `PYTORCH_CUDA_ALLOC_CONF`'s texts sets them.
///
/// Options marked "no effect yet" are read and checked, so that texts written for torch are accepted, but change
/// nothing.
///
/// ```
/// use c10_core::AllocatorConfig;
///
/// let config = AllocatorConfig::default().parse("max_split_size_mb:128,expandable_segments:True")?;
/// assert_eq!((config.max_split_size, config.expandable_segments), (Some(128 << 20), true));
/// assert_eq!(config.to_string(), "max_split_size_mb:128,expandable_segments:True");
/// # Ok::<(), c10_core::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct AllocatorConfig {
    /// `max_split_size_mb`: blocks of at least this many bytes are not split; `None` means all may be.
    pub max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb`: bytes a block that may not be split can be larger than the request.
    pub max_non_split_rounding: u64,
    /// `garbage_collection_threshold`: part of the memory limit above which unused blocks are released; 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`: steps between two powers of two that sizes are rounded to, from 1 MiB in entry 0 to
    /// 32 GiB in entry 15; 0 is off.
    pub roundup_power2_divisions: [u32; ROUNDUP_ENTRIES],
    /// `expandable_segments`: segments are address ranges that grow.
    pub expandable_segments: bool,
    /// `large_segment_size_mb`, in bytes: the segment of a request between 1 MiB and 10 MiB.
    pub large_segment_size: u64,
    /// `release_lock_on_cudamalloc`: other threads may ask the driver for memory of the same device at the same time.
    /// What is cached can be had meanwhile in any case.
    pub release_lock_on_cudamalloc: bool,
    /// `backend`.
    pub backend: Backend,
    /// `pinned_use_cuda_host_register`: pinned memory is the system's own, which is registered with the driver.
    pub pinned_use_cuda_host_register: bool,
    /// `pinned_num_register_threads`: threads that touch the pages of memory to be registered.
    pub pinned_num_register_threads: u32,
    /// `pinned_use_background_threads`: events of pinned memory are looked at by a thread of their own.
    pub pinned_use_background_threads: bool,
    /// `pinned_reserve_segment_size_mb`, in bytes: pinned memory that is taken at once, when the first is asked for; 0 is
    /// off. What was taken stays when this changes.
    pub pinned_reserve_segment_size: u64,
    /// `graph_capture_record_stream_reuse`: memory that other streams used during a capture may serve that capture again
    /// where the graph orders the new use after the old one; without it such memory waits for the capture's end.
    pub graph_capture_record_stream_reuse: bool,
    /// `learn_plans`: a stream that asks for the same in each step gets addresses that were computed from its last two
    /// steps, so that it reserves hardly more than it has allocated. An option of this crate; torch refuses it.
    pub learn_plans: bool,
    /// `per_process_memory_fraction`: part of a device's memory this process may take.
    pub per_process_memory_fraction: f64,
    text: String,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        let large_segment_size = 20 * MIB;
        Self {
            max_split_size: None,
            max_non_split_rounding: large_segment_size,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; ROUNDUP_ENTRIES],
            expandable_segments: false,
            large_segment_size,
            release_lock_on_cudamalloc: false,
            backend: Backend::Native,
            pinned_use_cuda_host_register: false,
            pinned_num_register_threads: 1,
            pinned_use_background_threads: false,
            pinned_reserve_segment_size: 0,
            graph_capture_record_stream_reuse: false,
            learn_plans: false,
            per_process_memory_fraction: 1.0,
            text: String::new(),
        }
    }
}

impl AllocatorConfig {
    /// The configuration that the environment asks for: `PYTORCH_CUDA_ALLOC_CONF`, else `PYTORCH_HIP_ALLOC_CONF`,
    /// else `PYTORCH_ALLOC_CONF`. `get` looks a variable up.
    ///
    /// # Errors
    /// The text of the variable that counts is refused.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let set = VARIABLES.into_iter().find_map(|variable| Some((variable, get(variable)?)));
        let Some((variable, text)) = set else { return Ok(Self::default()) };
        Self::default().apply(&text, When::Load).map_err(|(setting, error)| EnvironmentError {
            variable,
            key: setting.key.text.to_owned(),
            value: setting.value.to_string(),
            error,
        })
    }

    /// Returns the defaults with the backend that the environment selects, even if other options in the text are
    /// invalid: torch reads the backend before the other options.
    pub(crate) fn backend_from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = VARIABLES.into_iter().find_map(get).unwrap_or_default();
        let mut config = Self::default();
        for setting in raw::settings(&text).iter().filter(|setting| setting.key.text == "backend") {
            config.backend = setting.backend(When::Load, config.backend).unwrap_or(config.backend);
        }
        config
    }

    /// The configuration after `text` is set while these values hold; torch's `_set_allocator_settings`.
    ///
    /// Each text first sets `max_split_size_mb`, `max_non_split_rounding_mb`, `garbage_collection_threshold` and
    /// `roundup_power2_divisions` back to their defaults; an option it does not name otherwise keeps its value.
    ///
    /// # Errors
    /// The first setting that is refused.
    pub fn parse(&self, text: &str) -> Result<Self, ConfigError> {
        self.apply(text, When::RunTime).map_err(|(_, error)| error)
    }

    /// The same before anything depends on the backend, which the text may choose.
    pub(crate) fn parse_at_start(&self, text: &str) -> Result<Self, ConfigError> {
        self.apply(text, When::Load).map_err(|(_, error)| error)
    }

    /// Whether memory is held in pages that move.
    pub(crate) fn is_elastic(&self) -> bool {
        self.backend == Backend::Elastic
    }

    /// Whether segments are address ranges that grow.
    pub(crate) fn expands(&self) -> bool {
        self.expandable_segments || self.is_elastic()
    }

    /// Whether a text names an option.
    pub(crate) fn names(text: &str, option: &str) -> bool {
        raw::settings(text).iter().any(|setting| setting.key.text == option)
    }

    /// The text that was parsed last.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The configuration after a text, or the setting that is refused.
    fn apply<'a>(&self, text: &'a str, when: When) -> Result<Self, (Setting<'a>, ConfigError)> {
        let mut settings = raw::settings(text);
        self.with(text, &settings, when).map_err(|(index, error)| (settings.swap_remove(index), error))
    }

    /// The same, with the position of the setting that is refused.
    fn with(&self, text: &str, settings: &[Setting<'_>], when: When) -> Result<Self, (usize, ConfigError)> {
        let mut config = Self { text: text.to_owned(), ..self.clone() };
        // The limits of other options depend on this one, wherever it stands.
        for (index, setting) in settings.iter().enumerate() {
            if setting.key.text == "large_segment_size_mb" {
                config.large_segment_size = setting.large_segment_size().map_err(|error| (index, error))?;
            }
        }
        config.max_split_size = None;
        config.max_non_split_rounding = config.large_segment_size;
        config.garbage_collection_threshold = 0.0;
        config.roundup_power2_divisions = [0; ROUNDUP_ENTRIES];
        for (index, setting) in settings.iter().enumerate() {
            config.set(setting, when).map_err(|error| (index, error))?;
        }
        Ok(config)
    }

    fn set(&mut self, setting: &Setting<'_>, when: When) -> Result<(), ConfigError> {
        let least = self.large_segment_size;
        match setting.key.text {
            "max_split_size_mb" => self.max_split_size = Some(setting.size_from("max_split_size_mb", least)?),
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding = setting.size_from("max_non_split_rounding_mb", least)?;
            }
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold = setting.garbage_collection_threshold()?;
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = setting.divisions()?,
            "expandable_segments" => self.expandable_segments = setting.switch()?,
            // Set already.
            "large_segment_size_mb" => {}
            "release_lock_on_cudamalloc" => self.release_lock_on_cudamalloc = setting.switch()?,
            "backend" => self.backend = setting.backend(when, self.backend)?,
            "pinned_use_cuda_host_register" => self.pinned_use_cuda_host_register = setting.switch()?,
            "pinned_num_register_threads" => self.pinned_num_register_threads = setting.register_threads()?,
            "pinned_use_background_threads" => self.pinned_use_background_threads = setting.switch()?,
            "pinned_reserve_segment_size_mb" => self.pinned_reserve_segment_size = setting.pinned_reserve()?,
            "graph_capture_record_stream_reuse" => self.graph_capture_record_stream_reuse = setting.switch()?,
            "learn_plans" => self.learn_plans = setting.switch()?,
            "per_process_memory_fraction" => self.per_process_memory_fraction = setting.memory_fraction()?,
            key => return Err(ConfigError::UnrecognizedKey { key: key.to_owned() }),
        }
        Ok(())
    }
}

/// When a text is read: the backend can be chosen only at first.
#[derive(Clone, Copy)]
enum When {
    Load,
    RunTime,
}

impl<'a> Setting<'a> {
    fn missing(&self) -> ConfigError {
        ConfigError::MissingValue { key: self.key.text.to_owned() }
    }

    fn word(&self) -> Result<Word<'a>, ConfigError> {
        match self.value {
            Value::Word(word) => Ok(word),
            Value::Missing | Value::List(_) | Value::OpenList => Err(self.missing()),
        }
    }

    fn switch(&self) -> Result<bool, ConfigError> {
        let Word { index, text } = self.word()?;
        match text {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(ConfigError::NotABool { index, text: text.to_owned() }),
        }
    }

    fn fraction(&self) -> Result<f64, ConfigError> {
        let word = self.word()?;
        word.text.parse().map_err(|_| word.not_a_number())
    }

    fn garbage_collection_threshold(&self) -> Result<f64, ConfigError> {
        let threshold = self.fraction()?;
        let proper = threshold > 0.0 && threshold < 1.0;
        if proper { Ok(threshold) } else { Err(ConfigError::GarbageCollectionThreshold) }
    }

    fn memory_fraction(&self) -> Result<f64, ConfigError> {
        let fraction = self.fraction()?;
        if (0.0..=1.0).contains(&fraction) { Ok(fraction) } else { Err(ConfigError::MemoryFraction) }
    }

    /// A size of at least `least` bytes.
    fn size_from(&self, key: &'static str, least: u64) -> Result<u64, ConfigError> {
        let size = bytes(self.word()?.number()?);
        if size >= least { Ok(size) } else { Err(ConfigError::TooSmall { key, relation: ">=", least: least / MIB }) }
    }

    fn large_segment_size(&self) -> Result<u64, ConfigError> {
        let size = self.word()?.number()?;
        let key = "large_segment_size_mb";
        let too_small = ConfigError::TooSmall { key, relation: ">", least: LARGE_SEGMENT_OVER_MIB };
        if size > LARGE_SEGMENT_OVER_MIB { Ok(bytes(size)) } else { Err(too_small) }
    }

    fn pinned_reserve(&self) -> Result<u64, ConfigError> {
        let size = self.word()?.number()?;
        if size > 0 { Ok(bytes(size)) } else { Err(ConfigError::PinnedReserve) }
    }

    fn register_threads(&self) -> Result<u32, ConfigError> {
        let count = self.word()?.number()?;
        if !count.is_power_of_two() {
            return Err(ConfigError::RegisterThreads { count });
        }
        let most = REGISTER_THREADS_MAX;
        let allowed = u32::try_from(count).ok().filter(|count| *count <= most);
        allowed.ok_or(ConfigError::TooManyRegisterThreads { count, most })
    }

    fn backend(&self, when: When, before: Backend) -> Result<Backend, ConfigError> {
        let named = match self.word()?.text {
            "native" => Backend::Native,
            "elastic" => Backend::Elastic,
            "cudaMallocAsync" => Backend::CudaMallocAsync,
            _ => return Err(ConfigError::UnknownBackend),
        };
        match when {
            When::RunTime if named != before => Err(ConfigError::BackendChanged),
            When::Load | When::RunTime => Ok(named),
        }
    }

    fn divisions(&self) -> Result<[u32; ROUNDUP_ENTRIES], ConfigError> {
        match &self.value {
            Value::Word(word) => Ok([word.divisions(Zero::Refused)?; ROUNDUP_ENTRIES]),
            Value::List(pairs) => division_table(pairs),
            Value::Missing | Value::OpenList => Err(self.missing()),
        }
    }
}

/// Whether 0 divisions, which is no rounding, may be asked for.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    Allowed,
    Refused,
}

impl Word<'_> {
    fn not_a_number(self) -> ConfigError {
        ConfigError::NotANumber { index: self.index, text: self.text.to_owned() }
    }

    fn number(self) -> Result<u64, ConfigError> {
        self.text.parse().map_err(|_| self.not_a_number())
    }

    fn divisions(self, zero: Zero) -> Result<u32, ConfigError> {
        let divisions = self.number()?;
        if divisions == 0 && zero == Zero::Allowed {
            return Ok(0);
        }
        let divisions = u32::try_from(divisions).ok().filter(|divisions| divisions.is_power_of_two());
        divisions.ok_or(ConfigError::RoundupDivisions)
    }
}

/// The table that a list such as `[256:1,512:2,>:8]` describes: the first size also stands for all smaller ones, `>`
/// for all above the one before it, and what is not named is not rounded.
fn division_table(pairs: &[(Word<'_>, Word<'_>)]) -> Result<[u32; ROUNDUP_ENTRIES], ConfigError> {
    let mut table = [0; ROUNDUP_ENTRIES];
    let mut last: Option<usize> = None;
    for (size, divisions) in pairs {
        let divisions = divisions.divisions(Zero::Allowed)?;
        if size.text == ">" {
            table[last.map_or(0, |last| last + 1)..].fill(divisions);
            continue;
        }
        let size = size.number()?;
        if !size.is_power_of_two() {
            return Err(ConfigError::RoundupInterval);
        }
        let entry = usize::try_from(size.ilog2()).map_or(ROUNDUP_ENTRIES - 1, |log2| log2.min(ROUNDUP_ENTRIES - 1));
        let first = if last.is_none() { 0 } else { entry };
        table[first..=entry].fill(divisions);
        last = Some(entry);
    }
    Ok(table)
}

fn bytes(mib: u64) -> u64 {
    mib.saturating_mul(MIB).min(SIZE_MAX_BYTES)
}

#[cfg(test)]
mod tests;
