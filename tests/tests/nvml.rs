//! The simulated driver and the simulated NVML as two shared objects of one process show one machine; the real NVML
//! answers where there is one; running out of memory says what PyTorch says.

use std::path::PathBuf;
use std::process::Command;

use c10_core::{
    DeviceIndex, DeviceReadings, Error, NoReading, OutOfMemory, ProcessMemory, Reading, Runtime, TelemetryError,
};

const DEVICE: DeviceIndex = DeviceIndex(0);
const MIB: u64 = 1 << 20;

/// The text that PyTorch 2.11 gave on an H200.
#[test]
fn the_text_is_the_recorded_one() {
    let facts = include_str!("../data/golden/torch_facts.json");
    let figures = OutOfMemory {
        device: DEVICE,
        requested: 4096 << 30,
        segment: 4096 << 30,
        total: 150_109_880_320,
        free: 149_106_589_696,
        allowed: None,
        allocated: 268 << 20,
        reserved: 268 << 20,
        cached_in_private_pools: 0,
        largest_free_block: 0,
    };
    let Error::OutOfMemory(mut failed) = Error::from(figures) else { panic!("it is out of memory") };
    failed.processes = vec![ProcessMemory { pid: std::process::id(), used_bytes: Some(948 << 20) }];
    let text = failed.torch_text();
    assert!(facts.contains(&format!("\"{text}\"")), "{text}");
}

/// A shared object, which cargo builds next to this test's executable.
fn shared_object(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let path = program.with_file_name(name);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

#[test]
fn two_shared_objects_show_one_machine() {
    let nvml = shared_object("libnvml_sim.so");
    let memory = (100 * MIB).to_string();
    let variables = [
        ("CUDA_SYS_LIBNVML", nvml.to_str().expect("a path that is text")),
        ("CUDA_SIM_MEMORY", &memory),
        ("CUDA_SIM_PROCESSES", "77:1048576"),
    ];
    testkit::with_environment("two_shared_objects_show_one_machine", &variables, look);
}

fn look() {
    let runtime = Runtime::on_driver_file(shared_object("libcuda_sim_driver.so"));
    let other = ProcessMemory { pid: 77, used_bytes: Some(MIB) };
    assert_eq!(runtime.telemetry().device_count(), Some(1));
    assert_eq!(runtime.telemetry().processes(DEVICE), Ok(vec![other]));
    let stream = runtime.streams().default(DEVICE).expect("a device");
    let buffer = runtime.memory().buffer(20 << 20, &stream).expect("enough memory");
    let this = ProcessMemory { pid: std::process::id(), used_bytes: Some(20 * MIB) };
    assert_eq!(runtime.telemetry().processes(DEVICE), Ok(vec![this, other]));
    let Err(Error::OutOfMemory(failed)) = runtime.memory().buffer(90 << 20, &stream) else {
        panic!("more than there is")
    };
    assert_eq!((failed.figures.free, failed.processes), (79 * MIB, vec![this, other]));
    drop(buffer);
}

/// A row of figures that do not move, as `nvidia-smi` prints them and as they are read here.
type Row<'a> = (&'a str, fn(&DeviceReadings) -> String);

/// Figures beside those of `nvidia-smi`.
const BESIDE: [Row<'static>; 12] = [
    ("name", |readings| readings.name.clone().unwrap_or_default()),
    ("uuid", |readings| readings.uuid.clone().unwrap_or_default()),
    ("memory.total", |readings| readings.memory.map_or_else(text, |memory| (memory.total >> 20).to_string())),
    ("power.limit", |readings| {
        readings.power.limit.map_or_else(text, |limit| format!("{}.{:02}", limit / 1000, limit % 1000 / 10))
    }),
    ("clocks.max.sm", |readings| readings.clocks.sm.map_or_else(text, |clock| clock.max.to_string())),
    ("clocks.max.memory", |readings| readings.clocks.memory.map_or_else(text, |clock| clock.max.to_string())),
    ("ecc.mode.current", |readings| readings.ecc.map_or_else(text, |_| "Enabled".to_owned())),
    ("ecc.errors.uncorrected.aggregate.total", |readings| {
        readings.ecc.and_then(|ecc| ecc.uncorrected_ever).map_or_else(text, |count| count.to_string())
    }),
    ("pcie.link.gen.max", |readings| readings.pcie.generation.map_or_else(text, |link| link.max.to_string())),
    ("pcie.link.width.current", |readings| readings.pcie.lanes.map_or_else(text, |link| link.now.to_string())),
    ("mig.mode.current", |readings| on(readings.mig)),
    ("persistence_mode", |readings| on(readings.persistence)),
];

fn on(reading: Reading<bool>) -> String {
    reading.map_or_else(text, |is_on| if is_on { "Enabled" } else { "Disabled" }.to_owned())
}

fn text(reason: NoReading) -> String {
    if reason == NoReading::NotSupported { "[N/A]".to_owned() } else { reason.to_string() }
}

/// Reads a device and asks `nvidia-smi` for the same.
#[expect(clippy::print_stdout, reason = "what a test on a GPU found is looked at")]
fn beside_nvidia_smi(runtime: &Runtime) {
    let names: Vec<&str> = BESIDE.iter().map(|(name, _)| *name).collect();
    let readings = runtime.telemetry().readings(DEVICE).expect("NVML answers for a device that CUDA has");
    println!("{readings:?}");
    println!("{:?}", runtime.telemetry().pcie_throughput(DEVICE));
    let query = format!("--query-gpu={}", names.join(","));
    let uuid = readings.uuid.clone().expect("every device has an identity");
    let asked = Command::new("nvidia-smi").args([&query, "--format=csv,noheader,nounits", "-i", &uuid]).output();
    let Ok(answer) = asked else { return println!("skipped: there is no nvidia-smi") };
    let line = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    let expected: Vec<&str> = line.split(", ").collect();
    let found: Vec<String> = BESIDE.iter().map(|(_, read)| read(&readings)).collect();
    println!("nvidia-smi says {line}");
    assert_eq!(found, expected, "{names:?}");
}

/// What the real libraries say of the first device, where there is one.
#[test]
fn the_real_nvml_where_there_is_a_gpu() {
    let runtime = Runtime::on_system_driver();
    if let Err(error) = runtime.init() {
        println!("skipped: {error}");
        return;
    }
    let telemetry = || {
        let load = (runtime.telemetry().utilization(DEVICE)?, runtime.telemetry().memory_usage(DEVICE)?);
        let rest = (
            runtime.telemetry().temperature(DEVICE)?,
            runtime.telemetry().power_draw(DEVICE)?,
            runtime.telemetry().clock_rate(DEVICE)?,
        );
        Ok::<_, Error>((load, rest, runtime.telemetry().memory_used(DEVICE)?))
    };
    let ((gpu, memory), (celsius, milliwatts, mhz), used) = match telemetry() {
        Err(error @ Error::Telemetry(TelemetryError::Missing { .. })) => return println!("skipped: {error}"),
        answered => answered.expect("NVML answers for a device that CUDA has"),
    };
    println!("{gpu} % {memory} % {celsius} C {milliwatts} mW {mhz} MHz {used} bytes used");
    assert!(gpu <= 100 && memory <= 100);
    assert!((1..120).contains(&celsius) && (1_000..2_000_000).contains(&milliwatts) && (100..5_000).contains(&mhz));
    assert_eq!(runtime.telemetry().device_count(), Some(runtime.device_count()));
    beside_nvidia_smi(&runtime);
    let stream = runtime.streams().default(DEVICE).expect("a device");
    let _held = runtime.memory().buffer(300 << 20, &stream).expect("enough memory");
    let this = |processes: &[ProcessMemory]| {
        let found = processes.iter().find(|process| process.pid == std::process::id()).copied();
        println!("this process among {processes:?}: {found:?}");
        found.map(|process| process.used_bytes.expect("the driver counts it"))
    };
    // In a container NVML may show the host's numbers of processes; then no line is this process's.
    let listed = this(&runtime.telemetry().processes(DEVICE).expect("NVML lists processes"));
    assert!(listed.is_none_or(|bytes| bytes >= 300 << 20));
    let Err(error) = runtime.memory().buffer(4096 << 30, &stream) else { panic!("more than there is") };
    let Error::OutOfMemory(failed) = &error else { panic!("{error:?}") };
    assert_eq!(this(&failed.processes).is_some(), listed.is_some(), "by identity and by number it is one device");
    println!("{error}");
    println!("{}", failed.hint());
}
