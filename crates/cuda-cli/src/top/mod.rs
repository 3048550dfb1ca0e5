//! `top`: devices and the processes on them, live in a terminal, once as text, or as lines of JSON.
//!
//! Reading order: `plain` (tables and JSON), `state` (what keys change), `view` (the picture), `live` (the terminal).

mod live;
mod plain;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::ArgMatches;
use cuda_api::Runtime;

use crate::Error;
use crate::machine;
use state::Choice;
pub(crate) use state::{INTERVALS, Sort};

/// Shows the machine as the options say. The exit code of a single table is 1 if no device can be shown.
pub(crate) fn run(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let interval = Duration::from_secs_f64(given.get_one::<f64>("interval").copied().unwrap_or(1.0));
    let choice = Choice {
        sort: given.get_one::<Sort>("sort").copied().unwrap_or_default(),
        device: given.get_one::<i32>("device").copied(),
    };
    let once = given.get_flag("once");
    if given.get_flag("json") {
        return lines_of_json(choice, (!once).then_some(interval), out);
    }
    if once {
        return table(choice, "", out);
    }
    match not_live() {
        None => live::run(choice, interval),
        Some(why) => table(choice, why, out),
    }
}

/// Why there can be no live table.
fn not_live() -> Option<&'static str> {
    if !std::io::stdout().is_terminal() {
        return Some("the output is no terminal");
    }
    if !std::io::stdin().is_terminal() {
        return Some("the input is no terminal, so no key could be pressed");
    }
    std::env::var_os("TERM").is_some_and(|term| term == "dumb").then_some("the terminal is a dumb one (TERM=dumb)")
}

fn table(choice: Choice, why: &str, out: &mut dyn Write) -> Result<u8, Error> {
    let machine = machine::look(&Runtime::current());
    out.write_all(plain::text(&machine, choice).as_bytes())?;
    if !why.is_empty() {
        writeln!(out, "\nShown once: {why}. `--once` asks for this, `--json` for lines that programs read.")?;
    }
    Ok(u8::from(machine.missing.is_some()))
}

fn lines_of_json(choice: Choice, interval: Option<Duration>, out: &mut dyn Write) -> Result<u8, Error> {
    loop {
        let machine = machine::look(&Runtime::current());
        writeln!(out, "{}", plain::json(&machine, choice))?;
        out.flush()?;
        match interval {
            Some(interval) => std::thread::sleep(interval),
            None => return Ok(u8::from(machine.missing.is_some())),
        }
    }
}
