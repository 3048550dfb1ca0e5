//! The tables of a simulated machine and the pictures of them at several sizes, compared with recorded ones.
//!
//! `TORCH_CUDA_BLESS=1 cargo test -p cuda-cli` records them anew.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use testkit::{CUresult, Config, Fault, SimulatedRuntime, Simulation};

use super::state::{Choice, Sort, State};
use super::{plain, view};
use crate::exports::{self, Exporter, Figures};
use crate::machine::{self, Machine};

const GIB: u64 = 1 << 30;

/// Numbers that no process of Linux has.
const PIDS: [u32; 3] = [7_000_001, 7_000_002, 7_000_003];

fn simulated(config: Config) -> SimulatedRuntime {
    Simulation::new(config).with_nvml().here()
}

/// What a process says that holds so many bytes of the second device, which it knows as its first.
fn told(reserved: u64) -> Figures {
    let uuid = "GPU-63756461-2d73-696d-2064-657669636531";
    let text = format!(
        "torch_cuda_allocated_bytes{{device=\"0\",pool=\"all\"}} {}\n\
         torch_cuda_device_info{{device=\"0\",uuid=\"{uuid}\"}} 1\n\
         torch_cuda_host_allocated_bytes 1048576\n\
         torch_cuda_num_ooms_total{{device=\"0\"}} 1\n\
         torch_cuda_reserved_bytes{{device=\"0\",pool=\"all\"}} {reserved}\n\
         torch_cuda_reserved_bytes_peak{{device=\"0\",pool=\"all\"}} {}\n",
        reserved / 2,
        reserved * 2,
    );
    Figures::parse(&text).unwrap()
}

/// Two devices, two processes that NVML lists and one that has ended.
fn scene() -> Machine {
    let sim = simulated(Config::default().devices(2).other_process(PIDS[0], 3 * GIB).other_process(PIDS[1], 5 * GIB));
    let mut machine = machine::look(sim.runtime());
    let exporter = |pid, program: &str, figures| Exporter { pid, program: program.to_owned(), figures };
    machine.exporters =
        vec![exporter(PIDS[0], "train", Ok(told(2 * GIB))), exporter(PIDS[2], "serve", Err(exports::Fault::Ended))];
    machine.exports_missing = None;
    machine
}

/// Compares a part of the README with a text, or writes it there.
fn in_readme(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(&format!("<!-- {name} -->\n")).unwrap();
    let (part, after) = rest.split_once("<!-- end -->").unwrap();
    let wanted = format!("```text\n{text}```\n");
    if std::env::var_os("TORCH_CUDA_BLESS").is_some() {
        std::fs::write(&path, format!("{before}<!-- {name} -->\n{wanted}<!-- end -->{after}")).unwrap();
    } else {
        assert!(part == wanted, "the README shows\n{part}\ninstead of\n{wanted}");
    }
}

/// Compares with what was recorded, or records.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TORCH_CUDA_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(recorded == text, "{name} was\n{recorded}\nand is\n{text}");
}

fn picture(state: &State, machine: Option<&Machine>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, state, machine)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width).max(1));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n").collect()
}

fn state() -> State {
    State::new(Choice::default(), Duration::from_secs(1))
}

fn press(state: &mut State, code: KeyCode, machine: &Machine) {
    state.press(KeyEvent::new(code, KeyModifiers::NONE), Some(machine));
}

#[test]
fn a_single_table_has_devices_processes_and_pools() {
    let text = plain::text(&scene(), Choice::default());
    golden("top_once.txt", &text);
    in_readme("top", &text);
}

#[test]
fn one_device_and_another_order_can_be_chosen() {
    let machine = scene();
    let choice = Choice { sort: Sort::Name, device: Some(1) };
    golden("top_once_device_1_by_name.txt", &plain::text(&machine, choice));
    let pids = |sort| Choice { sort, device: None }.rows(&machine).iter().map(|row| row.pid).collect::<Vec<_>>();
    assert_eq!(pids(Sort::Memory), [PIDS[1], PIDS[1], PIDS[0], PIDS[0], PIDS[2]]);
    assert_eq!(pids(Sort::Pid), [PIDS[0], PIDS[0], PIDS[1], PIDS[1], PIDS[2]]);
    let reserved = Choice { sort: Sort::Reserved, device: None }.rows(&machine);
    assert_eq!((reserved[0].pid, reserved[0].device), (PIDS[0], Some(1)), "only there it has pools of ours");
}

#[test]
fn json_says_the_same() {
    let object = plain::json(&scene(), Choice::default());
    assert!(object["devices"][1]["memory_used_bytes"].as_u64().unwrap() >= 8 * GIB);
    assert_eq!(object["devices"][0]["name"], "NVIDIA H200");
    assert_eq!(object["devices"][0]["load_percent"], 0);
    let rows = object["processes"].as_array().unwrap();
    let ours: Vec<_> = rows.iter().filter(|row| row["reserved_bytes"].is_u64()).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!((&ours[0]["device"], &ours[0]["reserved_bytes"]), (&1.into(), &(2 * GIB).into()));
    assert_eq!(object["faults"][0]["error"], "the process has ended");
}

#[test]
fn windows_of_all_sizes_are_drawn() {
    let machine = scene();
    golden("top_120x20.txt", &picture(&state(), Some(&machine), 120, 20));
    golden("top_80x14.txt", &picture(&state(), Some(&machine), 80, 14));
    golden("top_40x12.txt", &picture(&state(), Some(&machine), 40, 12));
    assert_eq!(picture(&state(), Some(&machine), 10, 3).lines().next(), Some("too small"));
    assert!(picture(&state(), None, 60, 10).contains("looking ..."));
    let mut helping = state();
    helping.shows_help = true;
    golden("top_help_80x20.txt", &picture(&helping, Some(&machine), 80, 20));
    for (width, height) in (0..60).flat_map(|width| (0..16).map(move |height| (width, height))) {
        picture(&state(), Some(&machine), width, height);
        picture(&helping, Some(&machine), width, height);
    }
}

#[test]
fn keys_change_what_is_shown() {
    let machine = scene();
    let mut state = state();
    press(&mut state, KeyCode::Char('s'), &machine);
    assert_eq!(state.choice.sort, Sort::Reserved);
    for (key, device) in [
        (KeyCode::Right, Some(0)),
        (KeyCode::Right, Some(1)),
        (KeyCode::Right, None),
        (KeyCode::Left, Some(1)),
        (KeyCode::Char('0'), Some(0)),
        (KeyCode::Char('7'), None),
        (KeyCode::Char('1'), Some(1)),
        (KeyCode::Char('a'), None),
    ] {
        press(&mut state, key, &machine);
        assert_eq!(state.choice.device, device, "{key:?}");
    }
    press(&mut state, KeyCode::Char(' '), &machine);
    assert!(state.is_paused && picture(&state, Some(&machine), 80, 10).contains("paused"));
    for (key, millis) in [('+', 2000), ('-', 1000), ('-', 500), ('-', 250), ('-', 125), ('-', 100), ('-', 100)] {
        press(&mut state, KeyCode::Char(key), &machine);
        assert_eq!(state.interval, Duration::from_millis(millis));
    }
    press(&mut state, KeyCode::Char('?'), &machine);
    assert!(picture(&state, Some(&machine), 80, 20).contains(" keys "));
    press(&mut state, KeyCode::Esc, &machine);
    assert!(!state.shows_help && !state.is_over);
    (0..100).for_each(|_| press(&mut state, KeyCode::Down, &machine));
    assert!(picture(&state, Some(&machine), 120, 20).contains("PID"), "the last process stays");
    press(&mut state, KeyCode::Home, &machine);
    state.press(KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL), Some(&machine));
    assert_eq!((state.first, state.choice.sort), (0, Sort::Reserved), "control and a letter are no letter");
    press(&mut state, KeyCode::Char('q'), &machine);
    assert!(state.is_over);
}

#[test]
fn what_nvml_does_not_tell_has_its_reason() {
    let fault = |call, code| Fault { call, occurrence: 1, code: CUresult(code) };
    // NVML_ERROR_NO_PERMISSION twice, and NVML_ERROR_NOT_SUPPORTED.
    let sim = simulated(
        Config::default()
            .fault(fault("nvmlDeviceGetPowerUsage", 4))
            .fault(fault("nvmlDeviceGetComputeRunningProcesses_v3", 4))
            .fault(fault("nvmlDeviceGetUtilizationRates", 3)),
    );
    let mut machine = machine::look(sim.runtime());
    machine.exporters.clear();
    golden("top_denied.txt", &plain::text(&machine, Choice::default()));
    // A device that is split into instances has no load of its own.
    if let Ok(of) = &mut machine.devices[0].readings {
        of.is_split = true;
    }
    assert!(plain::text(&machine, Choice::default()).contains("  MIG, idle\n"));
    assert_eq!(plain::json(&machine, Choice::default())["devices"][0]["mig"], true);
    let none = SimulatedRuntime::new(Config::default());
    let mut machine = machine::look(none.runtime());
    machine.exporters.clear();
    golden("top_no_nvml.txt", &plain::text(&machine, Choice::default()));
    let gone = simulated(Config::default().fault(fault("nvmlDeviceGetMemoryInfo", 15)));
    let machine = machine::look(gone.runtime());
    assert!(machine.devices[0].readings.as_ref().unwrap_err().contains("lost"), "{:?}", machine.devices[0].readings);
    assert!(!picture(&state(), Some(&machine), 80, 20).is_empty());
}
