//! Products of matrices are tuned: which way to each is the fastest on this machine is measured once, kept and written to a
//! file (`torch.cuda.tunable`).
//!
//! Torch has one way on NVIDIA's GPUs and so never finds anything. Here cuBLAS, each proposal of cuBLASLt and the kernels
//! of this crate compete; a result is compared with the default's before a candidate can be chosen.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! # let folder = std::env::temp_dir().join(format!("tunable-example-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! use aten_cuda::tunable;
//!
//! tunable::set_filename(&format!("{}/results.csv", folder.display()), true);
//! tunable::set_rotating_buffer_size(1);
//! tunable::set_max_tuning_iterations(3);
//! tunable::enable(true);
//! let untuned = folder.join("untuned.csv");
//! std::fs::write(&untuned, "GemmTunableOp_float_NN,nn_64_48_32_ld_64_32_64\n").unwrap();
//! tunable::tune_gemm_in_file(&untuned)?;
//! let results = tunable::get_results()?;
//! assert_eq!((results[0].op.as_str(), results[0].params.as_str()), ("GemmTunableOp_float_NN", "nn_64_48_32_ld_64_32_64"));
//! # std::fs::remove_dir_all(folder).unwrap();
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! # Files
//! Results are added to the file as soon as they are found, as in torch 2.11; there is nothing to flush at the end. The
//! file of a device is `tunableop_results0.csv` for the first one and so on, unless [`set_filename`] or
//! `PYTORCH_TUNABLEOP_FILENAME` say otherwise. Torch 2.11 reads it and uses it, and ours reads torch's: it names the
//! default for every product. What was chosen here stands beside it in `tunableop_results0.solutions.csv`, with the versions
//! of driver, libraries and kernels and the name of the device; when one of them changes, it is not used, and put aside as
//! `….old` by the next result. `tunableop_results0.trying.csv` is there while a search runs, and afterwards if a candidate
//! took its process along: the next run leaves that one out.
//!
//! # Environment
//! `PYTORCH_TUNABLEOP_` and `ENABLED`, `TUNING`, `RECORD_UNTUNED`, `VERBOSE` (0 to 3), `VERBOSE_FILENAME` (`err`, `out` or a
//! path), `FILENAME`, `UNTUNED_FILENAME`, `NUMERICAL_CHECK` (`atol_rtol`), `MAX_TUNING_DURATION_MS`,
//! `MAX_TUNING_ITERATIONS`, `MAX_WARMUP_DURATION_MS`, `MAX_WARMUP_ITERATIONS`, `ROTATING_BUFFER_SIZE` (MiB) and `BLAS_LOG`
//! are read once, when the first product or call needs them, and beat the calls, but for `FILENAME`. As in torch,
//! `ICACHE_FLUSH_ENABLED` makes no difference on NVIDIA's GPUs; `ROCBLAS_ENABLED` and `HIPBLASLT_ENABLED` are for others.
//!
//! # Differences from torch
//! - Results are kept for each device, not for the process.
//! - The rotating buffer may have 2 GiB and more; durations beyond 31 bits are the longest one, not 0.
//! - A product cannot be tuned on a stream that captures: that is an error which says so. In torch the capture breaks.
//! - A solution in a file that is not known is an error which names it. A file of another version is put aside when the
//!   first result is written; torch adds to it what it never reads.

use std::fmt;
use std::path::{Path, PathBuf};

use c10_core::{DeviceIndex, Runtime};

use super::context::Context;
use super::file::{self, Row};
use super::log::warn;
use super::offline;
use super::settings::Settings;
use super::signature::Problem;
use crate::base::error::Result;
use crate::base::tune_error::RejectedResults;

/// A product with the way that was found to be the fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct TunableResult {
    /// The signature of the operation, its dtype and its layout: `GemmTunableOp_Half_NT`.
    pub op: String,
    /// The signature of sizes and leading dimensions: `nt_64_48_32_ld_64_48_64`.
    pub params: String,
    /// The name of the way.
    pub solution: String,
    /// How long one product took, in milliseconds; 0 where a file does not tell.
    pub time: f64,
}

impl TunableResult {
    /// Whether the signatures name a product that can be tuned. Others are kept in files and otherwise without effect.
    #[must_use]
    pub fn is_product(&self) -> bool {
        Problem::parse(&self.op, &self.params).is_ok()
    }
}

/// As a line of a file has it.
impl fmt::Display for TunableResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, params, solution, time } = self;
        write!(f, "{op},{params},{solution},{}", file::General(*time))
    }
}

impl From<Row> for TunableResult {
    fn from(Row { op, params, solution, time }: Row) -> Self {
        Self { op, params, solution, time }
    }
}

/// What a file of results says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultsFile {
    /// Keys and values that the results depend on. Of several lines with one key the last one counts.
    pub validators: Vec<(String, String)>,
    /// The results in the order of their lines. Of several lines for one product the first one counts.
    pub results: Vec<TunableResult>,
}

/// What the bytes of a file of results say, whatever its validators are.
///
/// ```
/// use aten_cuda::tunable::parse_results;
///
/// let text = "Validator,PT_VERSION,2.11.0\nGemmTunableOp_Half_NN,nn_1_2_3_ld_1_3_1,Default,0.5\n";
/// let file = parse_results(text.as_bytes())?;
/// assert_eq!(file.validators, [("PT_VERSION".to_owned(), "2.11.0".to_owned())]);
/// assert!(file.results[0].is_product() && file.results[0].time == 0.5);
/// # Ok::<(), aten_cuda::RejectedResults>(())
/// ```
///
/// # Errors
/// A line is no text, or longer than any line of results.
pub fn parse_results(bytes: &[u8]) -> std::result::Result<ResultsFile, RejectedResults> {
    let contents = file::parse(bytes)?;
    let results = contents.rows.into_iter().map(Into::into).collect();
    Ok(ResultsFile { validators: contents.validators, results })
}

fn context() -> std::sync::Arc<Context> {
    Context::of(&Runtime::current())
}

/// The context of the current runtime with its current device.
fn here<R>(look: impl FnOnce(&Context, &Runtime, DeviceIndex) -> Result<R>) -> Result<R> {
    let runtime = Runtime::current();
    let device = runtime.current_device()?;
    look(&Context::of(&runtime), &runtime, device)
}

/// Switches the tuner on or off (`torch.cuda.tunable.enable`). It is off at first. Results are used while it is on.
pub fn enable(on: bool) {
    context().enable(on);
}

/// Whether the tuner is on.
#[must_use]
pub fn is_enabled() -> bool {
    context().is_enabled()
}

/// Switches tuning on or off (`torch.cuda.tunable.tuning_enable`): with it, a product without a result is tuned when it is
/// first computed. It is on at first, and without effect while the tuner is off.
pub fn tuning_enable(on: bool) {
    let context = context();
    context.log().say(1, format_args!("{} Tuning for TunableOp", if on { "Enable" } else { "Disable" }));
    context.settings(|settings| settings.enable_tuning(on));
}

/// Whether products without a result are tuned.
#[must_use]
pub fn tuning_is_enabled() -> bool {
    context().settings(|settings| settings.is_tuning())
}

/// Switches recording on or off (`torch.cuda.tunable.record_untuned_enable`): with it, and with tuning switched off, each
/// product without a result is written once to `tunableop_untuned0.csv` (for the first device), for
/// [`tune_gemm_in_file`]. It is off at first.
pub fn record_untuned_enable(on: bool) {
    let context = context();
    context.log().say(1, format_args!("{} Record Untuned for TunableOp", if on { "Enable" } else { "Disable" }));
    context.settings(|settings| settings.enable_recording(on));
}

/// Whether products without a result are written down.
#[must_use]
pub fn record_untuned_is_enabled() -> bool {
    context().settings(|settings| settings.is_recording())
}

/// Sets for how many milliseconds a candidate may be timed (`torch.cuda.tunable.set_max_tuning_duration`); 0 and less: as
/// long as it takes. 30 at first. The smaller of this limit and [`set_max_tuning_iterations`] counts; a candidate runs at
/// least once.
pub fn set_max_tuning_duration(milliseconds: i64) {
    context().settings(|settings| settings.set_duration(milliseconds));
}

/// For how many milliseconds a candidate may be timed.
///
/// # Errors
/// The environment sets it to what is no number.
pub fn get_max_tuning_duration() -> Result<i64> {
    Ok(context().settings(|settings| settings.duration())?)
}

/// Sets how often a candidate may be timed (`torch.cuda.tunable.set_max_tuning_iterations`); 0 and less: as often as the
/// duration allows. 100 at first.
pub fn set_max_tuning_iterations(count: i64) {
    context().settings(|settings| settings.set_iterations(count));
}

/// How often a candidate may be timed.
///
/// # Errors
/// The environment sets it to what is no number.
pub fn get_max_tuning_iterations() -> Result<i64> {
    Ok(context().settings(|settings| settings.iterations())?)
}

/// Sets the name of the file of results (`torch.cuda.tunable.set_filename`). With `insert_device_ordinal` each device has a
/// file of its own: its ordinal stands in the place of the first `%d`, else before the last dot, else at the end. What was
/// read before stays; the next result goes to the new file.
pub fn set_filename(filename: &str, insert_device_ordinal: bool) {
    context().settings(|settings| settings.set_filename(filename, insert_device_ordinal));
}

/// The name of the file of results of the current device; empty while none was set and no result was asked for
/// (`torch.cuda.tunable.get_filename`).
///
/// # Errors
/// The runtime cannot start.
pub fn get_filename() -> Result<String> {
    here(|context, _, device| Ok(context.filename(device)))
}

/// Every result of the current device, in the order of the signatures (`torch.cuda.tunable.get_results`). Reads the files if
/// nothing did before.
///
/// # Errors
/// The runtime cannot start.
pub fn get_results() -> Result<Vec<TunableResult>> {
    here(|context, runtime, device| Ok(context.results(runtime, device)?.rows().into_iter().map(Into::into).collect()))
}

/// Keys and values that torch's file depends on: the version of torch that is followed
/// (`torch.cuda.tunable.get_validators`).
#[must_use]
pub fn get_validators() -> Vec<(String, String)> {
    file::torch_validators()
}

/// Keys and values that our own solutions on the current device depend on: driver, device, libraries, kernels.
///
/// # Errors
/// The runtime cannot start.
pub fn get_solution_validators() -> Result<Vec<(String, String)>> {
    here(|context, runtime, device| Ok(context.results(runtime, device)?.validators().clone()))
}

/// Writes every result of the current device to a file, that of [`get_filename`] for `None`, and our own solutions to the
/// one beside it (`write_file` of torch before 2.10; later results are written as they are found). `false` where a file
/// cannot be written, or has no name.
///
/// # Errors
/// The runtime cannot start.
pub fn write_file<'a>(filename: impl Into<Option<&'a str>>) -> Result<bool> {
    let filename = filename.into();
    here(|context, runtime, device| {
        let results = context.results(runtime, device)?;
        let path = filename.map_or_else(|| PathBuf::from(context.filename(device)), PathBuf::from);
        if path.as_os_str().is_empty() {
            return Ok(false);
        }
        let mut torch: Vec<Row> = results.rows();
        let own = file::write(&file::solutions_of(&path), results.validators(), &torch);
        torch.iter_mut().for_each(|row| "Default".clone_into(&mut row.solution));
        // Variants of one product, which torch does not know, are one row there.
        torch.retain(|row| !row.params.contains("_v_"));
        let written = own.and_then(|()| file::write(&path, &file::torch_validators(), &torch));
        written.as_ref().err().into_iter().for_each(|error| warn(format_args!("{error}")));
        Ok(written.is_ok())
    })
}

/// Takes the results of a file, that of [`get_filename`] for `None`, for the current device
/// (`torch.cuda.tunable.read_file`). What is known already stays. `false` where the file cannot be read or is refused, with
/// a warning that says why; [`load_file`] gives the reason as an error.
///
/// # Errors
/// The runtime cannot start.
pub fn read_file<'a>(filename: impl Into<Option<&'a str>>) -> Result<bool> {
    match load_file(filename) {
        Ok(()) => Ok(true),
        Err(crate::base::error::Error::Tune(error)) => {
            warn(format_args!("{error}"));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// As [`read_file`], with the reason as an error.
///
/// # Errors
/// The runtime cannot start, or the file is not there, cannot be read or is refused ([`TuneError`](crate::TuneError)).
pub fn load_file<'a>(filename: impl Into<Option<&'a str>>) -> Result<()> {
    let filename = filename.into().filter(|name| !name.is_empty());
    here(|context, runtime, device| {
        let name = filename.map_or_else(|| context.filename(device), str::to_owned);
        // Before the device's own files are read: what was asked for comes first, as in torch.
        context.load(runtime, device, Path::new(&name))
    })
}

/// Tunes the products in a file of untuned ones on the current device, and prints to the error output what was gained
/// (`torch.cuda.tunable.tune_gemm_in_file`). Lines that begin with neither `Gemm` nor `ScaledGemm` are passed over, and
/// products that have a result are not tuned again.
///
/// # Errors
/// The tuner or tuning is off ([`Disabled`](crate::TuneError::Disabled), [`TuningDisabled`](crate::TuneError::TuningDisabled)), the file cannot be read, a line is no
/// product, or as for a search: the device failed, or a candidate destroyed its context.
pub fn tune_gemm_in_file(filename: impl AsRef<Path>) -> Result<()> {
    offline::tune_file(filename.as_ref())
}

/// Tunes the products in all files whose names fit a pattern with `*` and `?`, each of them once, on the first `num_gpus`
/// devices (`torch.cuda.tunable.mgpu_tune_gemm_in_file`). A thread serves each device, where torch starts a process. The
/// results of all devices are then gathered into `tunableop_results_full0.csv` and as many copies as there are devices.
///
/// # Errors
/// As for [`tune_gemm_in_file`]; there are not so many devices ([`DeviceCount`](crate::TuneError::DeviceCount)), or products are being recorded.
pub fn mgpu_tune_gemm_in_file(filename_pattern: &str, num_gpus: usize) -> Result<()> {
    offline::tune_files(filename_pattern, num_gpus)
}

/// Sets how many MiB copies of the operands fill together while candidates are timed, so that they are not found in the
/// cache (`torch.cuda.tunable.set_rotating_buffer_size`). 0: one copy; below 0: as much as the second-level cache has, which
/// is so at first.
pub fn set_rotating_buffer_size(mebibytes: i64) {
    context().settings(|settings| settings.set_rotating(mebibytes));
}

/// The size of the rotating buffer on the current device, in bytes.
///
/// # Errors
/// The runtime cannot start, or the environment sets it to what is no number.
pub fn get_rotating_buffer_size() -> Result<u64> {
    here(|context, runtime, device| {
        let cache = u64::try_from(runtime.devices().properties(device)?.L2_cache_size).unwrap_or(0);
        Ok(context.settings(|settings| settings.rotating(cache))?)
    })
}

/// Sets whether candidates are also compared on the operands of the product itself, and how far an element may be from the
/// default's: `atol + rtol * |default|`, both 1e-5 for `None` (`torch.cuda.tunable.set_numerical_check_tolerances`). Off at
/// first. Whether it is on or not, each candidate is compared on random operands.
///
/// # Errors
/// A tolerance is not above zero ([`Tolerances`](crate::TuneError::Tolerances)).
pub fn set_numerical_check_tolerances(
    enable: bool,
    atol: impl Into<Option<f64>>,
    rtol: impl Into<Option<f64>>,
) -> Result<()> {
    let (atol, rtol) = (atol.into().unwrap_or(1e-5), rtol.into().unwrap_or(1e-5));
    Ok(context().settings(|settings: &mut Settings| settings.set_check(enable, atol, rtol))?)
}
