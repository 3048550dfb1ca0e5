//! The command line, and completions of it for shells.

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::Error;

/// The name of the program.
const PROGRAM: &str = "torch-cuda";

/// All commands with their options.
pub(crate) fn all() -> Command {
    Command::new(PROGRAM)
        .about("Devices, what is missing on this machine, and memory snapshots")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("info").about("Lists the driver and the devices with their memory and load"))
        .subcommand(
            Command::new("doctor")
                .about("Says which libraries and devices are there, what is missing, and what that means"),
        )
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
