//! How a simulated machine is set up.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cuda_sys::{CUresult, CudaVersion};

use crate::model::profile;
use crate::topology::{LinkFault, Topology};

/// What is looked for in kernels beside what they compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelChecks {
    /// Accesses of several threads to the same memory that nothing orders.
    pub races: bool,
    /// Reads of memory that nobody has written.
    pub uninitialized: bool,
    /// Accesses outside of the blocks that an allocator of the program tells of.
    pub blocks: bool,
}

impl KernelChecks {
    /// Everything.
    pub const ALL: Self = Self { races: true, uninitialized: true, blocks: true };

    /// What is looked for while a kernel is executed.
    pub(crate) fn of_kernels(self) -> ptx_sim::Checks {
        ptx_sim::Checks { races: self.races, uninitialized: self.uninitialized }
    }

    /// Whether an allocator of the program is to tell of its blocks.
    pub(crate) fn need_blocks(self) -> bool {
        self.blocks || self.uninitialized
    }
}

/// What machine to simulate. Every history follows from this and the calls made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) seed: u64,
    pub(crate) devices: u32,
    pub(crate) driver_version: CudaVersion,
    pub(crate) capacity_bytes: u64,
    pub(crate) virtual_memory: bool,
    pub(crate) peer_access: bool,
    pub(crate) topology: Option<Topology>,
    pub(crate) stalls: bool,
    pub(crate) strict: bool,
    pub(crate) late_events: bool,
    pub(crate) launch_blocking: bool,
    pub(crate) eager_loading: bool,
    pub(crate) kernel_steps: u64,
    pub(crate) launch_steps: u64,
    pub(crate) parts_warps: bool,
    pub(crate) checks: KernelChecks,
    pub(crate) tells_reports: bool,
    pub(crate) keeps_prints: bool,
    pub(crate) faults: Vec<Fault>,
    pub(crate) link_faults: Vec<LinkFault>,
    pub(crate) other_processes: Vec<(u32, u64)>,
    pub(crate) nccl_timeout: Duration,
    pub(crate) machine_file: Option<PathBuf>,
}

/// Steps of all threads of a launch together, likewise.
const LAUNCH_STEPS: u64 = 1 << 38;

/// Steps of a thread after which its launch took too long, unless another number is set.
const KERNEL_STEPS: u64 = 1 << 24;

/// How long collectives wait for ranks that do not come, unless another time is set.
const NCCL_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            devices: 1,
            driver_version: CudaVersion(13000),
            capacity_bytes: profile::TOTAL_MEMORY_BYTES,
            virtual_memory: true,
            peer_access: true,
            topology: None,
            stalls: true,
            strict: false,
            late_events: false,
            launch_blocking: false,
            eager_loading: false,
            kernel_steps: KERNEL_STEPS,
            launch_steps: LAUNCH_STEPS,
            parts_warps: true,
            checks: KernelChecks::default(),
            tells_reports: false,
            keeps_prints: false,
            faults: Vec::new(),
            link_faults: Vec::new(),
            other_processes: Vec::new(),
            nccl_timeout: NCCL_TIMEOUT,
            machine_file: None,
        }
    }
}

impl Config {
    /// Seed of all latencies and orders that the model leaves open.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of devices, 0 to 16.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices.min(16);
        self
    }

    /// Version of CUDA that the driver claims to support; newer functions are hidden.
    #[must_use]
    pub fn driver_version(mut self, version: CudaVersion) -> Self {
        self.driver_version = version;
        self
    }

    /// Memory of each device in bytes.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Whether the devices have virtual memory management. Without, they say so, and addresses and memory for it are
    /// refused.
    #[must_use]
    pub fn virtual_memory(mut self, has: bool) -> Self {
        self.virtual_memory = has;
        self
    }

    /// Whether devices can reach each other's memory. Without, they say so, and access is refused.
    #[must_use]
    pub fn peer_access(mut self, has: bool) -> Self {
        self.peer_access = has;
        self
    }

    /// How the devices are connected: how long copies between them take and which wait for each other.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Whether work begins after latencies that only the seed knows, as it does unless this says otherwise. Without, all
    /// work begins as soon as what it waits for is done, and simulated time is the sum of what is modelled.
    #[must_use]
    pub fn stalls(mut self, stalls: bool) -> Self {
        self.stalls = stalls;
        self
    }

    /// Whether misuse that hardware would not notice is an error instead of only a report.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether the completion of an event becomes visible late.
    #[must_use]
    pub fn late_events(mut self, late: bool) -> Self {
        self.late_events = late;
        self
    }

    /// Whether calls that queue a copy, a set or a graph return only when that is done, as under
    /// `CUDA_LAUNCH_BLOCKING=1`; a fault of the work is then the answer of the call that queued it.
    #[must_use]
    pub fn launch_blocking(mut self, blocking: bool) -> Self {
        self.launch_blocking = blocking;
        self
    }

    /// Whether the driver says that it loads all functions of a module at once, as under `CUDA_MODULE_LOADING=EAGER`. Nothing
    /// else differs.
    #[must_use]
    pub fn eager_loading(mut self, eager: bool) -> Self {
        self.eager_loading = eager;
        self
    }

    /// Steps after which a thread of a kernel has taken too long, so that its launch ends with an error.
    #[must_use]
    pub fn kernel_steps(mut self, steps: u64) -> Self {
        self.kernel_steps = steps;
        self
    }

    /// Steps after which all threads of a launch together have taken too long.
    #[must_use]
    pub fn launch_steps(mut self, steps: u64) -> Self {
        self.launch_steps = steps;
        self
    }

    /// Whether the lanes of a warp part now and then without a reason, as they may on hardware. A kernel that relies on
    /// their running in step then fails under some seeds.
    #[must_use]
    pub fn parts_warps(mut self, parts: bool) -> Self {
        self.parts_warps = parts;
        self
    }

    /// What is looked for in kernels beside what they compute. Looking for races takes several times as long as running;
    /// nothing of it is done unless it is asked for.
    #[must_use]
    pub fn checks(mut self, checks: KernelChecks) -> Self {
        self.checks = checks;
        self
    }

    /// Whether what kernels print is kept for [`Machine::take_printed`](crate::Machine::take_printed) instead of written
    /// to the standard output.
    #[must_use]
    pub fn keeps_prints(mut self, keeps: bool) -> Self {
        self.keeps_prints = keeps;
        self
    }

    /// Adds a call that will fail.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Adds a link that will fail or get slower. Nothing happens on a machine without a [`Topology`].
    #[must_use]
    pub fn link_fault(mut self, fault: LinkFault) -> Self {
        self.link_faults.push(fault);
        self
    }

    /// Adds another process, which holds so many bytes of every device for as long as the machine exists.
    #[must_use]
    pub fn other_process(mut self, pid: u32, bytes: u64) -> Self {
        self.other_processes.push((pid, bytes));
        self
    }

    /// Makes the machine one that processes share: those that name the same file have the same devices, so that what one holds of
    /// their memory is not free for the others, and NVML lists them all. The file is made if it is not there; what a killed
    /// process held is free at once. Each process has addresses, a clock and a seed of its own, and work of several does not
    /// slow each other down.
    #[must_use]
    pub fn machine_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.machine_file = Some(path.into());
        self
    }

    /// How long in real time a collective waits for ranks that do not come, and a communicator for those that do not join,
    /// until the simulated NCCL lets it fail; 30 seconds at first.
    #[must_use]
    pub fn nccl_timeout(mut self, time: Duration) -> Self {
        self.nccl_timeout = time;
        self
    }

    /// The configuration that the environment asks for.
    ///
    /// `CUDA_SIM_DEVICES`, `CUDA_SIM_SEED`, `CUDA_SIM_DRIVER_VERSION` (`12.2` or `12020`), `CUDA_SIM_MEMORY` (bytes of
    /// each device), `CUDA_SIM_VIRTUAL_MEMORY`, `CUDA_SIM_PEER_ACCESS`, `CUDA_SIM_TOPOLOGY`
    /// (`nvlink:450:1000`, `pcie:64:2000:4` or `pairs:100:1000:0-1:2-3`, as the functions of [`Topology`]), `CUDA_SIM_STRICT`, `CUDA_SIM_LATE_EVENTS` (`1` for yes, `0` for no), `CUDA_SIM_KERNEL_STEPS`, `CUDA_SIM_FAULTS`
    /// (`symbol:occurrence:code`, or `link:0-1:down:5000ns` and `link:0-1:50%:4096B` for links that go down or have part of their
    /// bandwidth left, at a time or after bytes, separated by commas), `CUDA_SIM_PROCESSES` (`pid:bytes`, separated by commas), `CUDA_SIM_MACHINE` (the file
    /// of a machine that processes share) and
    /// `CUDA_SIM_NCCL_TIMEOUT` (milliseconds).
    /// `CUDA_LAUNCH_BLOCKING` and `CUDA_MODULE_LOADING` are the real driver's variables, and read as it reads them.
    ///
    /// # Errors
    /// A variable that cannot be read as what it should be.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for setting in SETTINGS {
            let Some(value) = variable(setting.variable).filter(|value| !value.trim().is_empty()) else { continue };
            (setting.read)(&mut config, value.trim()).ok_or(ConfigError {
                variable: setting.variable,
                expected: setting.expected,
                value,
            })?;
        }
        Ok(config)
    }
}

/// One variable of the environment: how it is read, and what it should hold.
struct Setting {
    variable: &'static str,
    expected: &'static str,
    read: fn(&mut Config, &str) -> Option<()>,
}

const SETTINGS: &[Setting] = &[
    Setting {
        variable: "CUDA_SIM_SEED",
        expected: "a whole number",
        read: |config, text| text.parse().ok().map(|seed| config.seed = seed),
    },
    Setting {
        variable: "CUDA_SIM_DEVICES",
        expected: "a number from 0 to 16",
        read: |config, text| text.parse().ok().filter(|count| *count <= 16).map(|count| config.devices = count),
    },
    Setting {
        variable: "CUDA_SIM_DRIVER_VERSION",
        expected: "a version such as 12.2 or 12020",
        read: |config, text| parse_version(text).map(|version| config.driver_version = version),
    },
    Setting {
        variable: "CUDA_SIM_MEMORY",
        expected: "a number of bytes",
        read: |config, text| text.parse().ok().map(|bytes| config.capacity_bytes = bytes),
    },
    Setting {
        variable: "CUDA_SIM_VIRTUAL_MEMORY",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|has| config.virtual_memory = has),
    },
    Setting {
        variable: "CUDA_SIM_PEER_ACCESS",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|has| config.peer_access = has),
    },
    Setting {
        variable: "CUDA_SIM_TOPOLOGY",
        expected: "nvlink:GB/s:ns, pcie:GB/s:ns:devices of a switch, or pairs:GB/s:ns:ONE-OTHER:...",
        read: |config, text| Topology::parse(text).map(|topology| config.topology = Some(topology)),
    },
    Setting {
        variable: "CUDA_SIM_STRICT",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|strict| config.strict = strict),
    },
    Setting {
        variable: "CUDA_SIM_LATE_EVENTS",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|late| config.late_events = late),
    },
    Setting {
        variable: "CUDA_LAUNCH_BLOCKING",
        expected: "anything: what begins with no number counts as 0",
        read: |config, text| {
            config.launch_blocking = begins_with_a_number_above_0(text);
            Some(())
        },
    },
    Setting {
        variable: "CUDA_MODULE_LOADING",
        expected: "anything: what is not EAGER counts as LAZY",
        read: |config, text| {
            config.eager_loading = text == "EAGER";
            Some(())
        },
    },
    Setting {
        variable: "CUDA_SIM_KERNEL_STEPS",
        expected: "a number of steps",
        read: |config, text| text.parse().ok().map(|steps| config.kernel_steps = steps),
    },
    Setting {
        variable: "CUDA_SIM_LAUNCH_STEPS",
        expected: "a number of steps",
        read: |config, text| text.parse().ok().map(|steps| config.launch_steps = steps),
    },
    Setting {
        variable: "CUDA_SIM_PARTS_WARPS",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|parts| config.parts_warps = parts),
    },
    Setting {
        variable: "CUDA_SIM_CHECKS",
        expected: "1 or 0",
        read: |config, text| {
            parse_flag(text).map(|all| config.checks = if all { KernelChecks::ALL } else { KernelChecks::default() })
        },
    },
    Setting {
        variable: "CUDA_SIM_REPORTS",
        expected: "1 or 0",
        read: |config, text| parse_flag(text).map(|tells| config.tells_reports = tells),
    },
    Setting {
        variable: "CUDA_SIM_FAULTS",
        expected: "symbol:occurrence:code of exported functions, or link:ONE-OTHER:down or 50%:5000ns or 4096B, separated by commas",
        read: |config, text| {
            for part in text.split(',').map(str::trim) {
                match LinkFault::parse(part) {
                    Some(fault) => config.link_faults.push(fault),
                    None => config.faults.push(Fault::parse(part)?),
                }
            }
            Some(())
        },
    },
    Setting {
        variable: "CUDA_SIM_MACHINE",
        expected: "the path of a file",
        read: |config, text| {
            config.machine_file = Some(PathBuf::from(text));
            Some(())
        },
    },
    Setting {
        variable: "CUDA_SIM_NCCL_TIMEOUT",
        expected: "a number of milliseconds",
        read: |config, text| text.parse().ok().map(|time| config.nccl_timeout = Duration::from_millis(time)),
    },
    Setting {
        variable: "CUDA_SIM_PROCESSES",
        expected: "pid:bytes of other processes, separated by commas",
        read: |config, text| {
            let processes: Option<Vec<(u32, u64)>> = text.split(',').map(|part| parse_process(part.trim())).collect();
            processes.map(|processes| config.other_processes = processes)
        },
    },
];

/// A variable of the environment that cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable, for example `CUDA_SIM_DEVICES`.
    pub variable: &'static str,
    /// What it should hold.
    pub expected: &'static str,
    /// What it holds.
    pub value: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}: expected {}", self.variable, self.value, self.expected)
    }
}

impl std::error::Error for ConfigError {}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// As C's `atoi` reads it: `1x` is a 1, `yes` is a 0.
fn begins_with_a_number_above_0(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.chars().take_while(char::is_ascii_digit).any(|digit| digit != '0')
}

/// `pid:bytes`.
fn parse_process(text: &str) -> Option<(u32, u64)> {
    let (pid, bytes) = text.split_once(':')?;
    Some((pid.parse().ok()?, bytes.parse().ok()?))
}

/// `12.2` or `12020`.
fn parse_version(text: &str) -> Option<CudaVersion> {
    if let Some((major, minor)) = text.split_once('.') {
        let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        return Some(CudaVersion(major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)?));
    }
    text.parse().ok().map(CudaVersion)
}

/// One call that is answered with an error instead of being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Symbol of the function, for example `cuMemAlloc_v2`; `ncclAsync` for the work of NCCL on a device, which fails under
    /// way.
    pub call: &'static str,
    /// Which call of that function fails, counted from 1 at the moment the fault is injected.
    pub occurrence: u64,
    /// What it answers; for a function of another library its own code of that number.
    pub code: CUresult,
}

impl Fault {
    /// Reads `symbol:occurrence:code`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (symbol, occurrence, code) = (parts.next()?, parts.next()?, parts.next()?);
        let driver = crate::EXPORTS.iter().map(|export| export.symbol);
        let libraries = [
            crate::NVML_EXPORTS,
            crate::CUBLAS_EXPORTS,
            crate::CUBLASLT_EXPORTS,
            crate::CUSOLVER_EXPORTS,
            crate::CUFFT_EXPORTS,
            crate::NCCL_EXPORTS,
            &[crate::nccl::ASYNC],
        ];
        let others = libraries.into_iter().flatten().copied();
        let call = driver.chain(others).find(|known| *known == symbol)?;
        Some(Self { call, occurrence: occurrence.parse().ok()?, code: CUresult(code.parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{LinkChange, LinkMoment};

    #[test]
    fn environment_is_read() {
        let config = Config::from_variables(|name| {
            let value = match name {
                "CUDA_SIM_DEVICES" => "2",
                "CUDA_SIM_DRIVER_VERSION" => "12.2",
                "CUDA_SIM_MEMORY" => "1073741824",
                "CUDA_SIM_STRICT" | "CUDA_LAUNCH_BLOCKING" => "1",
                "CUDA_MODULE_LOADING" => "EAGER",
                "CUDA_SIM_VIRTUAL_MEMORY" => "0",
                "CUDA_SIM_FAULTS" => "cuMemAlloc_v2:3:2, nvmlInit_v2:1:999, cublasGemmEx:2:13",
                "CUDA_SIM_PROCESSES" => "77:1024, 78:0",
                _ => return None,
            };
            Some(value.to_owned())
        });
        let expected = Config::default()
            .devices(2)
            .driver_version(CudaVersion(12020))
            .capacity(1 << 30)
            .strict(true)
            .virtual_memory(false)
            .launch_blocking(true)
            .eager_loading(true)
            .fault(Fault { call: "cuMemAlloc_v2", occurrence: 3, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY })
            .fault(Fault { call: "nvmlInit_v2", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN })
            .fault(Fault { call: "cublasGemmEx", occurrence: 2, code: CUresult(13) })
            .other_process(77, 1024)
            .other_process(78, 0);
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let wrong = [
            ("CUDA_SIM_DEVICES", "banana"),
            ("CUDA_SIM_DEVICES", "17"),
            ("CUDA_SIM_SEED", "-1"),
            ("CUDA_SIM_DRIVER_VERSION", "new"),
            ("CUDA_SIM_MEMORY", "2GiB"),
            ("CUDA_SIM_STRICT", "yes"),
            ("CUDA_SIM_KERNEL_STEPS", "many"),
            ("CUDA_SIM_FAULTS", "cuMemAlloc_v2:3:2,cuNope:1:1"),
            ("CUDA_SIM_FAULTS", "link:0-0:down:1ns"),
            ("CUDA_SIM_FAULTS", "link:0-1:0%:1ns"),
            ("CUDA_SIM_FAULTS", "link:0-1:down:1"),
            ("CUDA_SIM_FAULTS", "link:0-1:down:1ns:2"),
            ("CUDA_SIM_TOPOLOGY", "nvlink:0:5"),
            ("CUDA_SIM_TOPOLOGY", "nvlink:450:1000:2"),
            ("CUDA_SIM_TOPOLOGY", "pcie:64:1000:0"),
            ("CUDA_SIM_TOPOLOGY", "pairs:64:1000:0-x"),
            ("CUDA_SIM_PROCESSES", "77"),
            ("CUDA_SIM_PROCESSES", "77:1GiB"),
        ];
        for (variable, value) in wrong {
            let found = Config::from_variables(|name| (name == variable).then(|| value.to_owned()));
            let error = found.expect_err("not what it should be");
            assert_eq!((error.variable, error.value.as_str()), (variable, value));
        }
        let error = Config::from_variables(|name| (name == "CUDA_SIM_DEVICES").then(|| "banana".to_owned()));
        assert_eq!(
            error.expect_err("no number").to_string(),
            "CUDA_SIM_DEVICES=\"banana\": expected a number from 0 to 16"
        );
        assert_eq!(Config::from_variables(|_| Some(" ".to_owned())), Ok(Config::default()));
    }

    #[test]
    fn links_and_their_faults_are_read() {
        let of = |topology: &str, faults: &str| {
            Config::from_variables(|name| match name {
                "CUDA_SIM_TOPOLOGY" => Some(topology.to_owned()),
                "CUDA_SIM_FAULTS" => Some(faults.to_owned()),
                _ => None,
            })
        };
        let fault = |devices, change, when| LinkFault { devices, change, when };
        let read = of("nvlink:450:1000", "link:0-1:down:5000ns, cuMemAlloc_v2:3:2, link:3-2:50%:4096B");
        let expected = Config::default()
            .topology(Topology::nvlink(450, 1000))
            .fault(Fault { call: "cuMemAlloc_v2", occurrence: 3, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY })
            .link_fault(fault((0, 1), LinkChange::Down, LinkMoment::At(5_000)))
            .link_fault(fault((3, 2), LinkChange::Percent(50), LinkMoment::After(4_096)));
        assert_eq!(read, Ok(expected));
        assert_eq!(of("pcie:64:9:4", ""), Ok(Config::default().topology(Topology::pcie(64, 9, 4))));
        let pairs = Topology::pairs(100, 9, &[(0, 1), (3, 2)]);
        assert_eq!(of("pairs:100:9:0-1:3-2", ""), Ok(Config::default().topology(pairs)));
    }

    #[test]
    fn launch_blocking_is_read_as_the_driver_reads_it() {
        for (value, blocking) in [("1", true), ("2x", true), ("0", false), ("00", false), ("yes", false), ("", false)] {
            let config = Config::from_variables(|name| (name == "CUDA_LAUNCH_BLOCKING").then(|| value.to_owned()));
            assert_eq!(config, Ok(Config::default().launch_blocking(blocking)), "{value:?}");
        }
    }

    #[test]
    fn versions_are_read_in_both_forms() {
        assert_eq!(parse_version("11.8"), Some(CudaVersion(11080)));
        assert_eq!(parse_version("13000"), Some(CudaVersion(13000)));
        assert_eq!(parse_version("new"), None);
    }
}
