//! The command line, and completions of it for shells.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::Error;
use crate::top::{self, Sort};

/// The name of the program.
const PROGRAM: &str = "torch-cuda";

/// All commands with their options.
pub(crate) fn all() -> Command {
    Command::new(PROGRAM)
        .about("Devices, allocators of running programs, what is missing on this machine, and memory snapshots")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("info").about("Lists the driver and the devices with their memory and load"))
        .subcommand(
            Command::new("doctor")
                .about("Says which libraries and devices are there, what is missing, and what that means"),
        )
        .subcommand(top())
        .subcommand(stats())
        .subcommand(replay())
        .subcommand(bench())
        .subcommand(
            Command::new("snapshot")
                .about("Tells what a memory snapshot holds: fragmentation, holders, requests that failed")
                .arg(file())
                .arg(before())
                .arg(
                    Arg::new("lines")
                        .long("lines")
                        .value_name("KIND")
                        .value_parser(["segments", "memory"])
                        .conflicts_with("before")
                        .help("Prints the lines of a flame graph instead, as PyTorch's _memory_viz.py does"),
                )
                .arg(
                    Arg::new("all-frames")
                        .long("all-frames")
                        .action(ArgAction::SetTrue)
                        .help("Shows whole stacks, with the frames of the runtime and of the standard library"),
                ),
        )
        .subcommand(
            Command::new("viz")
                .about("Makes a page that shows a memory snapshot in a browser")
                .arg(file())
                .arg(
                    Arg::new("output")
                        .short('o')
                        .long("output")
                        .value_name("PAGE")
                        .value_parser(value_parser!(PathBuf))
                        .help("The page to write; without it, the snapshot's name with .html"),
                )
                .arg(before()),
        )
        .subcommand(
            Command::new("completions")
                .about("Prints the completions of this program for a shell")
                .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell)).action(ArgAction::Set)),
        )
}

fn top() -> Command {
    Command::new("top")
        .about("Shows devices and the processes on them, live")
        .long_about(
            "Shows devices and the processes on them, live: load, heat, power, clocks, memory. Of processes that run with \
             TORCH_CUDA_EXPORT=1 it shows what their allocator holds, too. Needs NVML, makes no CUDA context. \
             In the live table the key h lists the keys.",
        )
        .arg(flag("once", "Prints the tables once, as text"))
        .arg(flag("json", "Prints a line of JSON for each look"))
        .arg(
            Arg::new("interval")
                .short('n')
                .long("interval")
                .value_name("SECONDS")
                .value_parser(seconds)
                .default_value("1")
                .help("Time between two looks, 0.1 to 3600"),
        )
        .arg(device("Shows one device alone"))
        .arg(
            Arg::new("sort")
                .short('s')
                .long("sort")
                .value_name("COLUMN")
                .value_parser(EnumValueParser::<Sort>::new())
                .default_value("memory")
                .help("Orders processes by it"),
        )
}

fn stats() -> Command {
    Command::new("stats")
        .about("Tells the figures of an allocator: of a running process or of a memory snapshot")
        .long_about(
            "Tells the figures of an allocator. A process tells its figures if it was started with TORCH_CUDA_EXPORT=1, or \
             calls cuda_api::export_figures: they are those of the moment, asked for over a socket that only the same user \
             can open. Without a name every such process is listed.",
        )
        .arg(
            Arg::new("target").value_name("PID or SNAPSHOT").help("Number of a process, or a snapshot of PyTorch's or ours"),
        )
        .arg(flag("json", "Prints JSON").conflicts_with("prometheus"))
        .arg(flag("prometheus", "Prints the text format of Prometheus"))
}

fn replay() -> Command {
    Command::new("replay")
        .about("Replays recorded allocations under one or several sets of the allocator's options")
        .long_about(
            "Replays recorded allocations on this machine's device and tells for each set of options how much memory is \
             taken for how much, how often the driver is asked, and how long a step takes. A recording is a trace (lines \
             `a ID BYTES STREAM` and `f ID`, plain or .gz) or the history of a snapshot, PyTorch's or ours. The options of \
             the environment (PYTORCH_CUDA_ALLOC_CONF) hold in every set.",
        )
        .arg(
            Arg::new("trace")
                .value_name("TRACE or SNAPSHOT")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("What was recorded"),
        )
        .arg(
            Arg::new("conf")
                .short('c')
                .long("conf")
                .value_name("OPTIONS")
                .action(ArgAction::Append)
                .help("A set of options as PYTORCH_CUDA_ALLOC_CONF takes them; may be given several times"),
        )
        .arg(device("The device to replay on"))
        .arg(
            Arg::new("of-device")
                .long("of-device")
                .value_name("NUMBER")
                .value_parser(value_parser!(u32))
                .help("The device of a snapshot whose history is replayed; without it, the one with the longest"),
        )
        .arg(flag("json", "Prints JSON"))
}

fn bench() -> Command {
    Command::new("bench")
        .about("Measures a handful of figures of this machine")
        .long_about(
            "Measures a handful of figures of this machine: what an allocation, a launch, an event and a graph cost the \
             host, and how fast copies are. Each is the median of 15 samples beside the lowest and the highest, and each \
             is checked: what was copied arrived, and what was launched ran. Takes a few seconds and 200 MB of the device.",
        )
        .arg(device("The device to measure"))
        .arg(flag("quick", "Takes few and short samples, to see that everything works"))
        .arg(flag("json", "Prints JSON"))
}

fn device(help: &'static str) -> Arg {
    Arg::new("device")
        .short('d')
        .long("device")
        .value_name("NUMBER")
        .value_parser(value_parser!(i32).range(0..))
        .help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn seconds(text: &str) -> Result<f64, String> {
    let (least, most) = (top::INTERVALS.0.as_secs_f64(), top::INTERVALS.1.as_secs_f64());
    match text.parse() {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(seconds),
        _ => Err(format!("a number from {least} to {most} is needed")),
    }
}

fn file() -> Arg {
    Arg::new("file")
        .value_name("SNAPSHOT")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A snapshot of PyTorch's or ours, pickle or JSON")
}

fn before() -> Arg {
    Arg::new("before")
        .long("compare")
        .value_name("EARLIER")
        .value_parser(value_parser!(PathBuf))
        .help("An earlier snapshot to compare with")
}

/// Prints the completions for a shell.
pub(crate) fn completions(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    if let Some(shell) = given.get_one::<Shell>("shell") {
        // The generator ends the process when its writer fails, so it writes into memory.
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut all(), PROGRAM, &mut text);
        out.write_all(&text)?;
    }
    Ok(0)
}
