//! A machine that processes share: this program again, which does what it is told on its standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

/// The file of a machine, which goes with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(std::env::temp_dir().join(format!("cuda-sim-{name}-{}", std::process::id())));
        let _ = std::fs::remove_file(&place.0);
        place
    }

    fn machine(&self) -> Config {
        Config::default().devices(2).capacity(10 * GIB).machine_file(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Another process on the machine.
struct Other {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn new(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::as_told", "--ignored", "--nocapture"]).env("CUDA_SIM_MACHINE", path);
        command.env("CUDA_SIM_DEVICES", "2").env("CUDA_SIM_MEMORY", (10 * GIB).to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, orders, answers }
    }

    /// What it answers to an order.
    fn told(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it has ended");
            // The harness prints lines of its own, and the first answer stands behind one.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim().to_owned();
            }
        }
    }

    /// Kills it. Nobody has heard of its end yet when the test goes on, so that it still has its number.
    fn kill(mut self) -> Self {
        self.child.kill().unwrap();
        let stat = format!("/proc/{}/stat", self.pid());
        let has_ended = || std::fs::read_to_string(&stat).unwrap().contains(") Z ");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !has_ended() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(has_ended());
        self
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn as_told() {
    let (nvml, driver) = (cuda_sim::nvml(), cuda_sim::driver().unwrap());
    let rig = Rig { nvml, driver, machine: Machine::current(), _bound: Machine::current().bind() };
    let (mut context, mut held) = (ptr::null_mut(), Vec::new());
    // SAFETY: no pointers.
    unsafe { rig.driver.cuInit(0) }.unwrap();
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let answer = match order.split_once(' ') {
            Some(("use", device)) => {
                // SAFETY: `context` outlives the call.
                unsafe { rig.driver.cuDevicePrimaryCtxRetain(&mut context, device.parse().unwrap()) }.unwrap();
                // SAFETY: a context just retained.
                unsafe { rig.driver.cuCtxSetCurrent(context) }.unwrap();
                "used".to_owned()
            }
            Some(("take", bytes)) => {
                let mut address = 0;
                // SAFETY: `address` outlives the call.
                let taken = unsafe { rig.driver.cuMemAlloc_v2(&mut address, bytes.parse().unwrap()) };
                held.extend(taken.is_ok().then_some(address));
                taken.map_or_else(|error| error.status().unwrap().name().unwrap().to_owned(), |()| "taken".to_owned())
            }
            // Work that waits for a word that nobody writes.
            Some(("work", _)) => {
                // SAFETY: the memory is there.
                unsafe { rig.driver.cuStreamWaitValue32_v2(ptr::null_mut(), held[0], 77, 1) }.unwrap();
                "queued".to_owned()
            }
            _ => {
                // SAFETY: the last one that was allocated.
                unsafe { rig.driver.cuMemFree_v2(held.pop().unwrap()) }.unwrap();
                "freed".to_owned()
            }
        };
        println!("answer: {answer}");
    }
}

/// Free bytes of a device, and the processes on it, as NVML tells.
fn seen(rig: &Rig, device: u32) -> (u64, Vec<(u32, u64)>) {
    let device = rig.device(device).unwrap();
    let mut processes = rig.processes(device, 8).unwrap();
    processes.sort_unstable();
    (rig.memory(device).free, processes)
}

fn taken(bytes: u64) -> String {
    format!("take {bytes}")
}

#[test]
fn what_others_hold_is_not_free_and_is_told() {
    let place = Place::new("holds");
    let rig = started(place.machine());
    assert_eq!(seen(&rig, 0), (10 * GIB, vec![]));
    let (mut one, mut two) = (Other::new(&place.0), Other::new(&place.0));
    assert_eq!((one.told("use 0"), two.told("use 0")), ("used".to_owned(), "used".to_owned()));
    assert_eq!((one.told(&taken(6 * GIB)), two.told(&taken(3 * GIB))), ("taken".to_owned(), "taken".to_owned()));
    assert_eq!(two.told(&taken(2 * GIB)), "CUDA_ERROR_OUT_OF_MEMORY");
    let mut both = vec![(one.pid(), 6 * GIB), (two.pid(), 3 * GIB)];
    both.sort_unstable();
    assert_eq!((seen(&rig, 0), seen(&rig, 1)), ((GIB, both), (10 * GIB, vec![])));
    // This process cannot take it either, and the driver says so, too.
    rig.use_device(1 << 29);
    let (mut free, mut total, mut address) = (0, 0, 0);
    // SAFETY: both outlive the call.
    unsafe { rig.driver.cuMemGetInfo_v2(&mut free, &mut total) }.unwrap();
    assert_eq!((free as u64, total as u64), (GIB / 2, 10 * GIB));
    // SAFETY: `address` outlives the call.
    let refused = unsafe { rig.driver.cuMemAlloc_v2(&mut address, 1 << 30) }.unwrap_err();
    assert_eq!(refused.status(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(one.told("free"), "freed");
    assert_eq!(seen(&rig, 0).0, 6 * GIB + GIB / 2);
}

#[test]
fn a_killed_process_gives_its_memory_back() {
    let place = Place::new("killed");
    let rig = started(place.machine());
    for _ in 0..3 {
        let mut other = Other::new(&place.0);
        assert_eq!((other.told("use 1"), other.told(&taken(9 * GIB))), ("used".to_owned(), "taken".to_owned()));
        assert_eq!(seen(&rig, 1), (GIB, vec![(other.pid(), 9 * GIB)]));
        let _dead = other.kill();
        assert_eq!(seen(&rig, 1), (10 * GIB, vec![]));
    }
}

#[test]
fn the_load_is_that_of_all_processes() {
    let place = Place::new("load");
    let rig = started(place.machine());
    let load = || {
        let mut rates = nvmlUtilization_t { gpu: 77, memory: 77 };
        // SAFETY: `rates` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetUtilizationRates(rig.device(0).unwrap(), &mut rates) }.unwrap();
        rates.gpu
    };
    let mut other = Other::new(&place.0);
    let answers = [other.told("use 0"), other.told(&taken(GIB))];
    assert_eq!((answers, load()), (["used".to_owned(), "taken".to_owned()], 0));
    assert_eq!(other.told("work 0"), "queued");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while load() == 0 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(load(), 100);
    let _dead = other.kill();
    assert_eq!(load(), 0);
}

#[test]
fn processes_that_take_and_die_at_any_moment_never_hold_too_much() {
    let place = Place::new("storm");
    let rig = started(place.machine());
    let mut others: Vec<Other> = (0..3).map(|_| Other::new(&place.0)).collect();
    others.iter_mut().for_each(|other| assert_eq!(other.told("use 0"), "used"));
    for round in 0..6 {
        // Three of 4 GiB do not fit, whoever is first.
        others.iter_mut().for_each(|other| other.tell(&taken(4 * GIB)));
        let answers: Vec<String> = others.iter_mut().map(Other::answer).collect();
        assert_eq!(answers.iter().filter(|answer| *answer == "taken").count(), 2, "{answers:?}");
        let (free, processes) = seen(&rig, 0);
        assert_eq!((free, processes.iter().map(|(_, bytes)| bytes).sum()), (2 * GIB, 8 * GIB), "{processes:?}");
        // One is killed while it takes or gives back, and another comes in its place.
        let mut next = Other::new(&place.0);
        next.told("use 0");
        let mut killed = std::mem::replace(&mut others[round % 3], next);
        let order = if answers[round % 3] == "taken" { "free".to_owned() } else { taken(GIB) };
        killed.tell(&order);
        let _dead = killed.kill();
        let holds = |at: usize| at != round % 3 && answers[at] == "taken";
        let left = others.iter().enumerate().map(|(at, other)| (other.pid(), if holds(at) { 4 * GIB } else { 0 }));
        let mut left: Vec<(u32, u64)> = left.collect();
        left.sort_unstable();
        assert_eq!(seen(&rig, 0).1, left);
        for (at, other) in others.iter_mut().enumerate() {
            if holds(at) {
                assert_eq!(other.told("free"), "freed");
            }
        }
    }
    assert_eq!(seen(&rig, 0).0, 10 * GIB);
}

#[test]
fn a_file_that_is_no_machine_is_said() {
    let place = Place::new("none");
    std::fs::write(&place.0, "a file of the user's own").unwrap();
    let error = Machine::open(place.machine()).unwrap_err().to_string();
    assert!(error.contains("is no file of a shared machine"), "{error}");
    let rig = started(place.machine());
    let mut count = 9;
    // SAFETY: `count` outlives the call.
    unsafe { rig.nvml.nvmlDeviceGetCount_v2(&mut count) }.unwrap();
    assert_eq!((count, std::fs::read(&place.0).unwrap().len()), (0, 24));
}
