//! Runs the example programs as a user would, on the simulated driver.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DEMO: &str = env!("CARGO_BIN_EXE_demo");
const PROGRAMS: [&str; 8] = [
    env!("CARGO_BIN_EXE_01_alloc"),
    env!("CARGO_BIN_EXE_02_streams"),
    env!("CARGO_BIN_EXE_03_failures"),
    env!("CARGO_BIN_EXE_04_overlap"),
    env!("CARGO_BIN_EXE_05_replay"),
    env!("CARGO_BIN_EXE_06_tensors"),
    env!("CARGO_BIN_EXE_07_observe"),
    env!("CARGO_BIN_EXE_08_mixed_precision"),
];
const IPC: &str = env!("CARGO_BIN_EXE_ipc");
const SHARING: &str = env!("CARGO_BIN_EXE_sharing");
const DISTRIBUTED: &str = env!("CARGO_BIN_EXE_distributed");
const KILLED_RANK: &str = env!("CARGO_BIN_EXE_killed_rank");

/// Variables of whoever runs the tests that would configure the allocator.
const CONFIGURATION: [&str; 4] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"];

/// The simulated driver, which cargo puts among the dependencies of this test.
fn simulated() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libcuda_sim_driver.so");
    assert!(path.is_file(), "no simulated driver at {}", path.display());
    path
}

/// Runs a program on the simulated driver with some variables set.
fn run(program: &str, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(program);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    command.args(args).current_dir(root).env("CUDA_SYS_LIBCUDA", simulated());
    for name in CONFIGURATION {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_demo_runs_on_every_driver_version() {
    for version in ["11.8", "12.2", "13.0"] {
        let output = run(DEMO, &[("CUDA_SIM_DRIVER_VERSION", version)], &[]);
        let text = text(&output);
        assert!(output.status.success(), "driver {version}: {text}");
        assert!(text.starts_with("device: NVIDIA H200 ("), "driver {version}: {text}");
        assert!(text.contains("13575 allocations"), "driver {version}: {text}");
        assert!(text.contains("allocated 0 bytes, reserved 0 bytes"), "driver {version}: {text}");
    }
}

#[test]
fn the_demo_trains_the_same_with_and_without_a_graph() {
    let output = run(DEMO, &[], &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("randn(1000, 1000) on cuda:0: 4000256 bytes allocated"), "{text}");
    assert!(text.contains("200 losses and all weights equal to the bit with and without the graph"), "{text}");
    // The losses of each way as the demo printed them: 5 lines each.
    let losses = |way: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| line.trim_start().starts_with(way) && line.contains(" % step "));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let (host, eager, graph) = (losses("on the host"), losses("on the device"), losses("as a graph"));
    assert_eq!(eager.len(), 5, "{text}");
    assert!(eager.windows(2).all(|pair| pair[1] < pair[0]) && eager[4] * 10.0 < eager[0], "{text}");
    assert_eq!(eager, graph, "{text}");
    assert!(host.iter().zip(&eager).all(|(host, device)| (host - device).abs() <= 1e-4), "{text}");
}

#[test]
fn the_demo_goes_on_without_kernels() {
    // The driver refuses every module: its compiler does not know the version of the text.
    let faults = (1..9).map(|occurrence| format!("cuModuleLoadDataEx:{occurrence}:222")).collect::<Vec<_>>().join(",");
    let output = run(DEMO, &[("CUDA_SIM_FAULTS", &faults)], &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("This driver cannot run kernels (the driver refuses the module: "), "{text}");
    assert!(text.contains("allocated 0 bytes, reserved 0 bytes"), "{text}");
}

#[test]
fn the_demo_prints_no_control_characters_without_a_terminal() {
    let output = run(DEMO, &[], &[]);
    assert!(output.stdout.iter().all(|byte| *byte >= b' ' || *byte == b'\n'), "{}", text(&output));
}

#[test]
fn the_demo_fits_a_smaller_device() {
    let output = run(DEMO, &[("CUDA_SIM_MEMORY", "4294967296")], &[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("all sizes are divided by 8"), "{text}");
}

#[test]
fn the_demo_says_what_failed() {
    // The third allocation that the driver is asked for fails, and all after it that the cache could be emptied for.
    let faults = (3..40).map(|occurrence| format!("cuMemAlloc_v2:{occurrence}:2")).collect::<Vec<_>>().join(",");
    let output = run(DEMO, &[("CUDA_SIM_FAULTS", &faults)], &[]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FAILED") && text.contains("CUDA out of memory. Tried to allocate"), "{text}");
}

#[test]
fn the_demo_says_when_there_is_no_device() {
    let output = run(DEMO, &[("CUDA_SIM_DEVICES", "0")], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("No CUDA GPUs are available"), "{}", text(&output));
}

#[test]
fn the_demo_refuses_what_it_does_not_know() {
    for args in [&["--loud"][..], &["--driver"], &["extra"]] {
        let output = run(DEMO, &[], args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains("usage: demo"), "{args:?}: {}", text(&output));
    }
    let output =
        Command::new(DEMO).args(["--driver", "/nowhere/libcuda.so"]).env_remove("CUDA_SYS_LIBCUDA").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("there is no driver at /nowhere/libcuda.so"), "{}", text(&output));
}

#[test]
fn the_programs_run() {
    for program in PROGRAMS {
        let output = run(program, &[], &[]);
        assert!(output.status.success(), "{program}: {}", text(&output));
    }
}

#[test]
fn the_programs_print_their_times() {
    let overlap = text(&run(PROGRAMS[3], &[], &[]));
    assert!(overlap.starts_with("8 parts of 16384 bytes: ") && overlap.contains(" ms on two"), "{overlap}");
    let replay = text(&run(PROGRAMS[4], &[], &[]));
    assert!(replay.starts_with("1000 steps of 3 nodes;") && replay.contains("replayed "), "{replay}");
}

#[test]
fn the_classic_example_prints_its_tensor() {
    let words = text(&run(PROGRAMS[5], &[], &[]));
    assert!(words.starts_with("4000256 bytes allocated\ntensor([[ -2.3677,   2.6490,"), "{words}");
}

#[test]
fn streams_overlap_rightly_under_every_seed() {
    for seed in ["2", "3", "4", "5"] {
        let output = run(PROGRAMS[3], &[("CUDA_SIM_SEED", seed)], &[]);
        assert!(output.status.success(), "seed {seed}: {}", text(&output));
    }
}

#[test]
fn the_environment_configures_the_allocator() {
    let alloc = PROGRAMS[0];
    let plain = text(&run(alloc, &[], &[]));
    assert!(plain.contains("1048576 bytes allocated, 2097152 reserved"), "{plain}");
    let uncached = text(&run(alloc, &[("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")], &[]));
    assert!(uncached.contains("0 bytes allocated, 0 reserved"), "{uncached}");
    let refused = run(alloc, &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:Maybe")], &[]);
    let words = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'Maybe'"), "{words}");
}

#[test]
fn the_demo_runs_under_the_users_configuration() {
    for configuration in [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:64,roundup_power2_divisions:4"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ] {
        let output = run(DEMO, &[configuration], &[]);
        let text = text(&output);
        assert!(output.status.success(), "{configuration:?}: {text}");
        assert!(text.contains(&format!("figures are not compared: {} ", configuration.0)), "{text}");
        assert!(text.contains("allocated 0 bytes, reserved 0 bytes"), "{text}");
    }
}

#[test]
fn two_processes_share_memory() {
    const CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";
    for (seed, conf) in [("1", ""), ("2", ""), ("3", ""), ("4", "expandable_segments:True"), ("5", "backend:elastic")] {
        let output = run(IPC, &[("CUDA_SIM_SEED", seed), (CONF, conf)], &[]);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("first: dropped here, 1048576 bytes are kept for the second process\n"), "{text}");
        assert!(text.ends_with("second: dropped them\nfirst: 0 bytes are kept\n"), "{text}");
    }
    let switched_off = [(CONF, "expandable_segments:True"), ("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0")];
    let expandable = run(IPC, &switched_off, &[]);
    let words = text(&expandable);
    assert_eq!(expandable.status.code(), Some(1), "{words}");
    assert!(words.contains("Tensors allocated with expandable_segments:True cannot be shared"), "{words}");
}

#[test]
fn two_processes_share_a_tensor() {
    for (seed, conf) in [("1", ""), ("2", "expandable_segments:True"), ("3", "backend:elastic")] {
        let output = run(SHARING, &[("CUDA_SIM_SEED", seed), ("PYTORCH_CUDA_ALLOC_CONF", conf)], &[]);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("second: a tensor of [3] with the strides [4], of the same memory\n"), "{text}");
        assert!(text.ends_with("first: the second process was killed, 0 bytes are kept\n"), "{text}");
    }
}

#[test]
fn errors_of_the_call_itself_say_nothing_of_queued_work() {
    let failures = PROGRAMS[2];
    for value in ["0", "1"] {
        let output = run(failures, &[("CUDA_LAUNCH_BLOCKING", value)], &[]);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        assert!(!text.contains("CUDA_LAUNCH_BLOCKING") && !text.contains("asynchronously reported"), "{text}");
    }
}

/// A port that nobody else is given for a minute, since a connection to it has just been closed from its side.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    drop(listener.accept().unwrap());
    assert_eq!(std::io::Read::read(&mut client, &mut [0]).unwrap(), 0);
    address.port().to_string()
}

/// Stands for a launcher: starts two ranks with its variables, of which `R` is the rank, and ends as the worst of them.
fn stand_in(variables: &str, before_program: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || {{ echo 'Open MPI'; exit; }}\n\
         {before_program}\n\
         for R in 0 1; do env {variables} \"$@\" & all=\"$all $!\"; done\n\
         for one in $all; do wait $one || exit 1; done\n"
    )
}

/// What a launcher has before the program, each with a value but for those named.
const OPTIONS: &str =
    "while :; do case $1 in --no-python|--kill-on-bad-exit=1) shift;; -*) shift 2;; *) break;; esac; done";

#[test]
fn the_script_of_each_launcher_starts_ranks_that_sum_a_tensor() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("examples-launch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    for (launcher, script, variables) in [
        ("torchrun", "torchrun.sh", "RANK=$R LOCAL_RANK=$R WORLD_SIZE=2 MASTER_ADDR=127.0.0.1"),
        (
            "mpirun",
            "mpirun.sh",
            "OMPI_COMM_WORLD_RANK=$R OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$R OMPI_COMM_WORLD_LOCAL_SIZE=2",
        ),
        (
            "srun",
            "slurm.sbatch",
            "SLURM_PROCID=$R SLURM_NTASKS=2 SLURM_LOCALID=$R SLURM_NNODES=1 SLURM_STEP_NODELIST=localhost",
        ),
    ] {
        let file = folder.join(launcher);
        std::fs::write(&file, stand_in(variables, OPTIONS)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("examples/launch/{script}");
        let port = free_port();
        let output = run("sh", &[("PATH", &path), ("MASTER_PORT", &port)], &[&script, DISTRIBUTED]);
        let text = text(&output);
        assert!(output.status.success(), "{launcher}: {text}");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"], "{launcher}");
        let output = run("sh", &[("PATH", &path)], &[&script]);
        assert!(!output.status.success() && self::text(&output).contains("usage"), "{launcher}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The variables of a pod of the job, but for the address, which only its cluster knows.
#[test]
fn the_job_of_kubernetes_says_who_is_who() {
    let job = include_str!("../launch/kubernetes.yaml");
    let value = |name: &str| {
        let line = job.lines().find(|line| line.contains(&format!("name: {name}, value:"))).unwrap();
        line.rsplit_once("value: ").unwrap().1.trim_end_matches('}').trim_matches('"').to_owned()
    };
    assert!(
        job.contains("completionMode: Indexed") && job.contains(&format!("completions: {}\n", value("WORLD_SIZE")))
    );
    assert_eq!(value("MASTER_ADDR"), "distributed-0.ranks");
    let (port, size) = (free_port(), value("WORLD_SIZE"));
    let rank = |rank: &str| {
        let variables = [
            ("JOB_COMPLETION_INDEX", rank),
            ("WORLD_SIZE", &size),
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", &port),
        ];
        let output = run(DISTRIBUTED, &variables, &[]);
        assert_eq!(text(&output), format!("rank {rank} of {size}: the sum is 10\n"));
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        (0..4).for_each(|number| drop(scope.spawn(move || rank(&number.to_string()))));
    });
}

/// Before and after a collective it is the same program; that others find out then too is tested with the groups.
#[test]
fn the_others_say_which_rank_was_killed() {
    let port = free_port();
    let rank = |rank: usize| {
        let rank = rank.to_string();
        let variables = [
            ("RANK", rank.as_str()),
            ("WORLD_SIZE", "3"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("TORCH_NCCL_COORD_CHECK_MILSEC", "100"),
        ];
        run(KILLED_RANK, &variables, &["in", "--seconds", "3"])
    };
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || rank(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for output in &outputs[..2] {
        let text = text(output);
        assert!(output.status.success(), "{text}");
        // It may still have said that it called what it died in.
        let is_named =
            ["never called by rank 2", "no sign of life comes from rank 2"].iter().any(|said| text.contains(said));
        assert!(is_named && text.contains("is refused"), "{text}");
    }
    assert!(!outputs[2].status.success() && text(&outputs[2]).contains("kills itself"));
}
