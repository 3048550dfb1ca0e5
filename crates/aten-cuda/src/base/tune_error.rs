//! What can go wrong when products are tuned and files of results are read.

/// A call of the tuner that cannot be answered, or a search that had to end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A product was to be tuned on a stream that captures: nothing can be timed there.
    #[error(
        "{op}({params}) cannot be tuned while the current stream captures: run the product once before the capture, or \
         call tuning_enable(false)"
    )]
    Capturing {
        /// The operation's signature.
        op: String,
        /// The signature of its parameters.
        params: String,
    },
    /// A candidate destroyed the context of its device. A journal beside the results names it, so that the next run
    /// leaves it out.
    #[error(
        "the context of the device was lost while {candidate} was tried for {op}({params}); the next run leaves it out: \
         {cause}"
    )]
    ContextLost {
        /// The candidate's name.
        candidate: String,
        /// The operation's signature.
        op: String,
        /// The signature of its parameters.
        params: String,
        /// What the runtime said.
        cause: String,
    },
    /// A file of results names a solution that there is not.
    #[error("{solution} is no solution of {op}({params}): correct the file of results, or write Default there")]
    UnknownSolution {
        /// The name in the file.
        solution: String,
        /// The operation's signature.
        op: String,
        /// The signature of its parameters.
        params: String,
    },
    /// An environment variable has a value that cannot be read.
    #[error("{variable} is {expected}, but it is set to `{value}`")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A tolerance of the numerical check is not above zero.
    #[error("Numerical check tolerances must be positive. Got atol={atol}, rtol={rtol}")]
    Tolerances {
        /// The absolute one.
        atol: f64,
        /// The relative one.
        rtol: f64,
    },
    /// Offline tuning was asked for while TunableOp is off.
    #[error("TunableOp is not enabled")]
    Disabled,
    /// Offline tuning was asked for while tuning is off.
    #[error("Tuning is not enabled")]
    TuningDisabled,
    /// Offline tuning on several devices was asked for while untuned products are recorded.
    #[error("untuned products are being recorded: call record_untuned_enable(false) first")]
    Recording,
    /// More devices were asked for than there are, or none.
    #[error("num_gpus must be between 1 and {available}, got {asked}")]
    DeviceCount {
        /// What was asked for.
        asked: usize,
        /// How many there are.
        available: usize,
    },
    /// A text is no signature of a product.
    #[error("`{text}` is no product that can be tuned: {why}")]
    Signature {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A product of a signature cannot be made here.
    #[error("{op}({params}) has no operands that could be tuned offline: {why}")]
    Offline {
        /// The operation's signature.
        op: String,
        /// The signature of its parameters.
        params: String,
        /// Why not.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}: {cause}")]
    File {
        /// What was tried: `read`, `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// A file of results was refused as a whole.
    #[error("the results in {path} are not used: {cause}")]
    Rejected {
        /// The file.
        path: String,
        /// Why.
        cause: RejectedResults,
    },
}

/// Why a file of results is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectedResults {
    /// The file is larger than any file of results.
    #[error("it has {bytes} bytes, and a file of results has at most {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A line is no text, or longer than any line of results.
    #[error("line {line} is no line of results")]
    Line {
        /// The line, counted from 1.
        line: usize,
    },
    /// A validator that has to be there is missing.
    #[error("Unmatched validator: \"{key}\" is required, but the tuning results does not provide it.")]
    MissingValidator {
        /// Its key.
        key: String,
    },
    /// The file has a validator that is not known.
    #[error("Unmatched validator: \"{key}\" is provided, but it is not one of those here.")]
    ExtraValidator {
        /// Its key.
        key: String,
    },
    /// A validator has another value.
    #[error("Failed validator: {key} is {found}, but here it is {wanted}")]
    OtherValue {
        /// Its key.
        key: String,
        /// The value in the file.
        found: String,
        /// The value here.
        wanted: String,
    },
}
