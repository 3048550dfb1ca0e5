//! What can be wrong with allocator configuration text, in torch's words where torch has any.

use thiserror::Error;

/// Why allocator configuration text was refused; nothing of the text was applied.
///
/// ```
/// use c10_core::{AllocatorConfig, ConfigError};
///
/// let refused = AllocatorConfig::default().parse("roundup_power2_divisions:3").unwrap_err();
/// assert_eq!(refused, ConfigError::RoundupDivisions);
/// assert_eq!(refused.to_string(), "For roundups, the divisions has to be power of 2");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key nobody knows.
    #[error("Unrecognized key '{key}' in CUDA allocator config.")]
    UnrecognizedKey {
        /// The key.
        key: String,
    },
    /// The text ends where the value of a key should stand.
    #[error("Expected a value for '{key}' in the CUDA allocator config, but the text ends there")]
    MissingValue {
        /// The key.
        key: String,
    },
    /// A switch that is neither on nor off.
    #[error("Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{text}'")]
    NotABool {
        /// Position among the words and separators of the text.
        index: usize,
        /// What stands there.
        text: String,
    },
    /// No number where there should be one.
    #[error("Expected a number at index {index} in ConfigTokenizer but got '{text}'")]
    NotANumber {
        /// Position among the words and separators of the text.
        index: usize,
        /// What stands there.
        text: String,
    },
    /// A size below what the allocator can work with.
    #[error("CachingAllocator option {key} too small, must be {relation} {least}")]
    TooSmall {
        /// The key.
        key: &'static str,
        /// Whether the bound itself is allowed: `>=` or `>`.
        relation: &'static str,
        /// The bound, in MiB.
        least: u64,
    },
    /// A garbage collection threshold that is no proper fraction.
    #[error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")]
    GarbageCollectionThreshold,
    /// A memory fraction that is no fraction.
    #[error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")]
    MemoryFraction,
    /// A number of divisions that is no power of two.
    #[error("For roundups, the divisions has to be power of 2")]
    RoundupDivisions,
    /// A size in a list of divisions that is no power of two.
    #[error("For roundups, the intervals have to be power of 2")]
    RoundupInterval,
    /// A number of threads that is no power of two.
    #[error("Number of register threads has to be power of 2, got {count}")]
    RegisterThreads {
        /// The number.
        count: u64,
    },
    /// More threads than allowed.
    #[error("Number of register threads should be less than or equal to {most}, got {count}")]
    TooManyRegisterThreads {
        /// The number.
        count: u64,
        /// The bound.
        most: u32,
    },
    /// A pinned reserve of nothing.
    #[error("Pinned reserve segment size has to be greater than 0")]
    PinnedReserve,
    /// A backend nobody knows.
    #[error("Unknown allocator backend, options are native and cudaMallocAsync")]
    UnknownBackend,
    /// Another backend than the one the process began with.
    #[error("Allocator backend parsed at runtime != allocator backend parsed at load time")]
    BackendChanged,
}

/// A setting of an environment variable that was refused; nothing of the variable was applied.
///
/// ```
/// use c10_core::AllocatorConfig;
///
/// let environment = |name: &str| (name == "PYTORCH_ALLOC_CONF").then(|| "foo:1".to_owned());
/// let refused = AllocatorConfig::from_env(environment).unwrap_err();
/// assert_eq!((refused.variable, refused.key.as_str()), ("PYTORCH_ALLOC_CONF", "foo"));
/// assert!(refused.to_string().starts_with("Unrecognized key 'foo' in CUDA allocator config."));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{error} (the environment variable {variable} sets '{key}' to '{value}')")]
#[non_exhaustive]
pub struct EnvironmentError {
    /// The variable.
    pub variable: &'static str,
    /// The key of the setting.
    pub key: String,
    /// Its value as written; empty where there is none.
    pub value: String,
    /// Why it was refused.
    #[source]
    pub error: ConfigError,
}
