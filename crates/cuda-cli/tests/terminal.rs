//! `top` in a pseudo-terminal: keys, another size, leaving; and where there is no terminal.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{program, told};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// How long something may take to show up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program in a terminal.
struct Window {
    keys: File,
    terminal: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Window {
    fn open(words: &[&str]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = std::ffi::OsString::from_vec(ptsname(&ours, Vec::new()).unwrap().into_bytes());
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&terminal, size(120, 30)).unwrap();
        let end = || Stdio::from(OwnedFd::from(terminal.try_clone().unwrap()));
        let mut command = program(words);
        command.env("TERM", "xterm").env("CUDA_SIM_PROCESSES", "7000001:3221225472");
        let child = command.stdin(end()).stdout(end()).stderr(Stdio::piped()).spawn().unwrap();
        let keys = File::from(ours);
        let (mut screen, seen) = (keys.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let shown = Arc::clone(&seen);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                shown.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { keys, terminal, child, seen }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until the screen is as it should be.
    fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        while !is_so(&screen(&self.seen())) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not come:\n{}", screen(&self.seen()));
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end: it is a good one, and the terminal is as it was.
    fn end(mut self) {
        let status = self.child.wait().unwrap();
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert!(status.success() && complaint.is_empty(), "{status}: {complaint}");
        let begin = Instant::now();
        while !self.seen().contains("\u{1b}[?1049l") {
            assert!(begin.elapsed() < PATIENCE, "the screen from before is not back");
            thread::sleep(Duration::from_millis(10));
        }
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
    }
}

/// What a terminal shows that was told so: positions, clearing and signs are followed, colours are not.
fn screen(told: &str) -> String {
    let mut rows = vec![[' '; 200]; 60];
    let (mut row, mut column) = (0, 0);
    let mut signs = told.chars();
    while let Some(sign) = signs.next() {
        if sign != '\u{1b}' {
            rows[row % 60][column % 200] = sign;
            column += 1;
            continue;
        }
        let mut words = String::new();
        for sign in signs.by_ref().skip(1) {
            words.push(sign);
            if sign.is_ascii_alphabetic() {
                break;
            }
        }
        match words.chars().last() {
            Some('H') => {
                let mut place = words.trim_end_matches('H').split(';').map(|number| number.parse().unwrap_or(1_usize));
                (row, column) = (place.next().unwrap_or(1) - 1, place.next().unwrap_or(1) - 1);
            }
            Some('J') => rows.fill([' '; 200]),
            _ => {}
        }
    }
    rows.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
}

#[test]
fn keys_and_sizes_are_followed_and_the_terminal_is_given_back() {
    let mut window = Window::open(&["top", "--interval", "0.1"]);
    window.wait_for("7000001");
    assert!(!tcgetattr(&window.terminal).unwrap().local_modes.contains(LocalModes::ICANON), "keys come one by one");
    window.press("s");
    window.wait_for("by reserved");
    window.press("p");
    window.wait_for("paused");
    window.press("?");
    window.wait_for(" keys ");
    window.press("\u{1b}");
    window.wait_until("the table", |screen| !screen.contains(" keys ") && screen.contains("7000001"));
    tcsetwinsize(&window.terminal, size(20, 5)).unwrap();
    let pid = Pid::from_raw(i32::try_from(window.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::WINCH).unwrap();
    window.wait_until("the warning", |screen| screen.contains("too small") && !screen.contains("7000001"));
    tcsetwinsize(&window.terminal, size(100, 20)).unwrap();
    kill_process(pid, Signal::WINCH).unwrap();
    window.wait_for("7000001");
    window.press("q");
    window.end();
}

#[test]
fn control_c_leaves_as_well() {
    let mut window = Window::open(&["top", "-d", "1", "-s", "pid"]);
    window.wait_for("by pid");
    window.press("\u{3}");
    window.end();
}

#[test]
fn without_a_terminal_there_is_one_table_and_the_reason() {
    let (code, text, error) = told(&mut program(&["top"]));
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains("NVIDIA H200"), "{text}");
    assert!(text.contains("\nShown once: the output is no terminal. `--once` asks for this"), "{text}");
    let (_, once, _) = told(&mut program(&["top", "--once"]));
    assert!(text.starts_with(&once) && !once.contains("Shown once"), "{once}");
}

#[test]
fn whoever_stops_reading_gets_no_complaint() {
    let mut child =
        program(&["top", "--json", "--interval", "0.1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["devices"].as_array().unwrap().len(), 2);
    }
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(1), ""));
}

#[test]
fn without_nvml_the_reason_is_told() {
    let (code, text, _) = told(program(&["top", "--once"]).env("CUDA_SYS_LIBNVML", "/nowhere/libnvidia-ml.so.1"));
    assert_eq!(code, 1);
    assert!(text.contains("no devices: NVML, which tells what devices do, cannot be loaded."), "{text}");
    assert!(text.contains("/nowhere/libnvidia-ml.so.1"), "{text}");
    for (words, complaint) in [
        (["top", "--interval", "0"], "a number from 0.1 to 3600 is needed"),
        (["top", "--interval", "nan"], "a number from 0.1 to 3600 is needed"),
        (["top", "--sort", "size"], "possible values: memory, reserved, pid, name"),
        (["top", "--device", "-1"], "-1"),
    ] {
        let (code, _, error) = told(&mut program(&words));
        assert!(code == 2 && error.contains(complaint), "{words:?}: {error}");
    }
}
