//! `torch.cuda.tunable`: its calls answer what PyTorch 2.11 answered on an H200, but where the documentation says
//! otherwise, and its files are PyTorch's.

use std::path::PathBuf;

use cuda_api::torch;
use cuda_api::tunable::{self, TuneError};
use testkit::{Config, SimulatedRuntime};

/// An empty folder, in which the runtime of the thread then has its files.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tunable-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the folder for temporary files can be written to");
    tunable::set_filename(&path.join("results.csv").to_string_lossy(), true);
    path
}

/// Tuning that is quick on the simulated device.
fn quick() {
    tunable::set_rotating_buffer_size(0);
    tunable::set_max_tuning_iterations(1);
    tunable::enable(true);
}

/// The cause, where an error is one of the tuner.
fn cause(error: torch::Error) -> TuneError {
    let torch::Error::Tune(error) = error else { panic!("{error}") };
    *error
}

#[test]
fn the_calls_answer_as_torch() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert!(!tunable::is_enabled() && tunable::tuning_is_enabled() && !tunable::record_untuned_is_enabled());
    assert_eq!((tunable::get_max_tuning_duration()?, tunable::get_max_tuning_iterations()?), (30, 100));
    assert_eq!(tunable::get_filename()?, "");
    assert_eq!(tunable::get_validators(), [("PT_VERSION".to_owned(), "2.11.0".to_owned())]);
    let cache = cuda_api::get_device_properties(None)?.L2_cache_size;
    assert_eq!(tunable::get_rotating_buffer_size()?, u64::try_from(cache).unwrap());
    tunable::set_rotating_buffer_size(1);
    assert_eq!(tunable::get_rotating_buffer_size()?, 1 << 20);
    tunable::set_max_tuning_duration(-3);
    tunable::set_max_tuning_iterations(12);
    assert_eq!((tunable::get_max_tuning_duration()?, tunable::get_max_tuning_iterations()?), (0, 12));
    tunable::set_filename("a%d.csv", true);
    assert_eq!(tunable::get_filename()?, "a0.csv");
    tunable::set_numerical_check_tolerances(true, 1e-2, None)?;
    let refused = tunable::set_numerical_check_tolerances(false, -1.0, 1.0).unwrap_err();
    assert_eq!(refused.to_string(), "Numerical check tolerances must be positive. Got atol=-1, rtol=1");
    tunable::enable(true);
    tunable::tuning_enable(false);
    tunable::record_untuned_enable(true);
    assert!(tunable::is_enabled() && !tunable::tuning_is_enabled() && tunable::record_untuned_is_enabled());
    let _other = testkit::simulated_runtime();
    assert!(!tunable::is_enabled(), "each runtime has switches of its own");
    Ok(())
}

#[test]
fn offline_tuning_of_what_torch_recorded() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let folder = folder("offline");
    let untuned = concat!(env!("CARGO_MANIFEST_DIR"), "/../aten-cuda/tests/data/tunable/torch-2.11-untuned.csv");
    assert_eq!(cause(tunable::tune_gemm_in_file(untuned).unwrap_err()).to_string(), "TunableOp is not enabled");
    quick();
    tunable::tuning_enable(false);
    assert_eq!(cause(tunable::tune_gemm_in_file(untuned).unwrap_err()).to_string(), "Tuning is not enabled");
    tunable::tuning_enable(true);
    assert!(matches!(cause(tunable::tune_gemm_in_file(folder.join("none")).unwrap_err()), TuneError::File { .. }));
    tunable::tune_gemm_in_file(untuned)?;
    let results = tunable::get_results()?;
    let wanted = std::fs::read_to_string(untuned).unwrap();
    let mut wanted: Vec<&str> = wanted.lines().collect();
    wanted.sort_unstable();
    let mut found: Vec<String> = results.iter().map(|result| format!("{},{}", result.op, result.params)).collect();
    found.sort();
    assert_eq!(found, wanted);
    // Torch reads the file: one validator, and the default for everything.
    let text = std::fs::read_to_string(folder.join("results0.csv")).unwrap();
    assert!(text.starts_with("Validator,PT_VERSION,2.11.0\nGemm"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(",Default,")).count(), 34);
    // What is known is not tuned again.
    tunable::tune_gemm_in_file(untuned)?;
    assert_eq!(std::fs::read_to_string(folder.join("results0.csv")).unwrap(), text);
    Ok(())
}

#[test]
fn lines_that_are_no_products() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let folder = folder("lines");
    quick();
    let tune = |line: &str| {
        let path = folder.join("one.csv");
        std::fs::write(&path, line).unwrap();
        tunable::tune_gemm_in_file(path).map_err(cause)
    };
    for passed_over in
        ["", "hello\n", "GemmFooTunableOp_float_NN,nn_64_48_32_ld_64_32_64\n", "  GemmTunableOp_float_NN,nn\n"]
    {
        assert_eq!(tune(passed_over), Ok(()), "{passed_over}");
    }
    // A product without elements, one whose lines overlap, and one that no memory can hold are told and left out.
    for left_out in [
        "nn_0_48_32_ld_64_32_64",
        "nn_64_48_32_ld_1_1_1",
        "nn_9223372036854775807_1_1_ld_9223372036854775807_1_9223372036854775807",
    ] {
        assert_eq!(tune(&format!("GemmTunableOp_float_NN,{left_out}\n")), Ok(()), "{left_out}");
    }
    for wrong in [
        "GemmTunableOp_float_NN,nn_64_48",
        "GemmTunableOp_Foo_NN,nn_64_48_32_ld_64_32_64",
        "GemmTunableOp_float_NN",
        "GemmTunableOp_float_XX,xx_64_48_32_ld_64_32_64",
    ] {
        assert!(matches!(tune(wrong), Err(TuneError::Signature { .. })), "{wrong}");
    }
    assert_eq!(tunable::get_results()?, []);
    Ok(())
}

#[test]
fn files_are_written_and_read() -> torch::Result<()> {
    let _simulated = testkit::simulated_runtime();
    let folder = folder("files");
    quick();
    let one = folder.join("one.csv");
    std::fs::write(&one, "GemmTunableOp_Half_NN,nn_16_8_4_ld_16_4_16\n").unwrap();
    tunable::tune_gemm_in_file(&one)?;
    let copy = folder.join("copy.csv");
    assert!(tunable::write_file(copy.to_str())?);
    assert!(!tunable::write_file(folder.join("no/where.csv").to_str())?);
    let results = tunable::get_results()?;
    assert_eq!(tunable::get_solution_validators()?[2].0, "DEVICE");

    let _other = testkit::simulated_runtime();
    tunable::set_filename(folder.join("other.csv").to_str().unwrap(), false);
    assert!(!tunable::read_file(folder.join("none.csv").to_str())? && !tunable::read_file(None)?);
    assert!(tunable::read_file(copy.to_str())?);
    assert!(tunable::read_file(folder.join("copy.solutions.csv").to_str())?);
    let read = tunable::get_results()?;
    assert_eq!(
        (&read[0].op, &read[0].params, &read[0].solution),
        (&results[0].op, &results[0].params, &results[0].solution)
    );
    std::fs::write(&copy, "Validator,PT_VERSION,2.3.0\n").unwrap();
    assert!(!tunable::read_file(copy.to_str())?);
    let refused = cause(tunable::load_file(copy.to_str()).unwrap_err()).to_string();
    assert!(refused.ends_with("Failed validator: PT_VERSION is 2.3.0, but here it is 2.11.0"), "{refused}");
    Ok(())
}

#[test]
fn several_devices_share_the_work() -> torch::Result<()> {
    // A process with one simulated machine: the threads of the tuner find it, too.
    let simulated = SimulatedRuntime::new(Config::default().devices(2));
    simulated.machine().make_default();
    let folder = folder("devices");
    quick();
    let pattern = folder.join("untuned?.csv");
    let pattern = pattern.to_str().unwrap();
    for (asked, text) in
        [(0, "num_gpus must be between 1 and 2, got 0"), (99, "num_gpus must be between 1 and 2, got 99")]
    {
        assert_eq!(cause(tunable::mgpu_tune_gemm_in_file(pattern, asked).unwrap_err()).to_string(), text);
    }
    tunable::record_untuned_enable(true);
    assert_eq!(cause(tunable::mgpu_tune_gemm_in_file(pattern, 2).unwrap_err()), TuneError::Recording);
    tunable::record_untuned_enable(false);
    let line = |size: i32| format!("GemmTunableOp_float_NN,nn_{size}_8_4_ld_{size}_4_{size}\n");
    std::fs::write(folder.join("untuned0.csv"), line(16) + &line(24) + &line(32)).unwrap();
    std::fs::write(folder.join("untuned1.csv"), line(32)).unwrap();
    tunable::mgpu_tune_gemm_in_file(pattern, 2)?;
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let counts =
        ["results0.csv", "results1.csv", "results_full0.csv", "results_full1.csv", "results_full0.solutions.csv"]
            .map(|name| read(name).lines().filter(|line| line.starts_with("Gemm")).count());
    assert_eq!(counts, [2, 1, 3, 3, 3]);
    assert_eq!(read("results_full0.csv"), read("results_full1.csv"));
    Ok(())
}
