//! The live table: a thread looks at the machine, this one draws and reads keys.
//!
//! **Invariants:** the terminal is as it was when this returns or panics. A key never waits for NVML.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use cuda_api::Runtime;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::state::{Choice, State};
use super::view;
use crate::Error;
use crate::machine::{self, Machine};

/// How long a key is waited for before a newer machine is looked for.
const TICK: Duration = Duration::from_millis(50);

/// Shows the table until the user has enough.
pub(super) fn run(choice: Choice, interval: Duration) -> Result<u8, Error> {
    let terminal = ratatui::try_init().map_err(Error::Terminal)?;
    let shown = show(terminal, State::new(choice, interval));
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(Error::Terminal)?;
    Ok(0)
}

fn show(mut terminal: DefaultTerminal, mut state: State) -> io::Result<()> {
    let (machines, pace) = looker(state.interval);
    let mut machine: Option<Machine> = None;
    let mut has_changed = true;
    while !state.is_over {
        if has_changed {
            terminal.draw(|frame| view::draw(frame, &state, machine.as_ref()))?;
        }
        has_changed = false;
        if event::poll(TICK)? {
            has_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let before = state.interval;
                state.press(key, machine.as_ref());
                if state.interval != before {
                    // The thread ends only with this function.
                    let _ = pace.send(state.interval);
                }
            }
        }
        if let Some(newest) = machines.try_iter().last()
            && !(state.is_paused && machine.is_some())
        {
            machine = Some(newest);
            has_changed = true;
        }
    }
    Ok(())
}

/// A thread that looks at the machine at a pace that can be changed, until its pace's sender is dropped.
fn looker(mut interval: Duration) -> (Receiver<Machine>, Sender<Duration>) {
    let (machines, seen) = mpsc::channel();
    let (pace, paces) = mpsc::channel();
    let runtime = Runtime::current();
    std::thread::spawn(move || {
        while machines.send(machine::look(&runtime)).is_ok() {
            match paces.recv_timeout(interval) {
                Ok(changed) => interval = changed,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    (seen, pace)
}
