//! What keys change: the order, the device, whether time stands still.

use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use cuda_api::DeviceIndex;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::machine::{Machine, Row};

/// By what processes are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Memory on the device, the most first.
    #[default]
    Memory,
    /// What our allocator holds, the most first.
    Reserved,
    /// Number of the process.
    Pid,
    /// Name of the program.
    Name,
}

impl ValueEnum for Sort {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Memory, Self::Reserved, Self::Pid, Self::Name]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Reserved => "reserved",
            Self::Pid => "pid",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Memory => Self::Reserved,
            Self::Reserved => Self::Pid,
            Self::Pid => Self::Name,
            Self::Name => Self::Memory,
        }
    }
}

/// What is shown, and in which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) sort: Sort,
    /// One device, or all.
    pub(crate) device: Option<i32>,
}

impl Choice {
    pub(crate) fn shows(self, device: Option<DeviceIndex>) -> bool {
        self.device.is_none_or(|chosen| device == Some(chosen))
    }

    /// The processes that are chosen, in order.
    pub(crate) fn rows(self, machine: &Machine) -> Vec<Row> {
        let mut rows = machine.rows();
        rows.retain(|row| self.shows(row.device));
        let reserved = |row: &Row| row.pools.map_or(0, |pools| pools.reserved);
        // Those that are equal stand by device and number, so that lines do not jump.
        rows.sort_by_key(|row| (row.device.unwrap_or(i32::MAX), row.pid));
        match self.sort {
            Sort::Memory => rows.sort_by_key(|row| std::cmp::Reverse((row.used.unwrap_or(0), reserved(row)))),
            Sort::Reserved => rows.sort_by_key(|row| std::cmp::Reverse(reserved(row))),
            Sort::Pid => rows.sort_by_key(|row| row.pid),
            Sort::Name => rows.sort_by(|one, other| one.name.cmp(&other.name)),
        }
        rows
    }
}

/// Shortest and longest time between two looks.
pub(crate) const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// What the live table is at.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) choice: Choice,
    pub(crate) interval: Duration,
    pub(crate) is_paused: bool,
    pub(crate) shows_help: bool,
    /// The first process that is shown.
    pub(crate) first: usize,
    pub(crate) is_over: bool,
}

impl State {
    pub(crate) fn new(choice: Choice, interval: Duration) -> Self {
        Self { choice, interval, is_paused: false, shows_help: false, first: 0, is_over: false }
    }

    /// A key was pressed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "keys that mean nothing here are most of them")]
    pub(crate) fn press(&mut self, key: KeyEvent, machine: Option<&Machine>) {
        let devices = machine.map_or(0, |machine| i32::try_from(machine.devices.len()).unwrap_or(i32::MAX));
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => self.is_over = true,
            KeyCode::Char(_) if is_control => {}
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Char('q') | KeyCode::Esc => self.is_over = true,
            KeyCode::Char('h' | '?') => self.shows_help = !self.shows_help,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Char('a') => self.choice.device = None,
            KeyCode::Char(digit @ '0'..='9') => self.choose(digit.to_digit(10).map(u32::cast_signed), devices),
            KeyCode::Right => self.choose(Some(self.choice.device.map_or(0, |device| device + 1)), devices),
            KeyCode::Left => {
                let before = self.choice.device.map_or(devices - 1, |device| device - 1);
                self.choose(Some(before), devices);
            }
            KeyCode::Down => self.first += 1,
            KeyCode::PageDown => self.first += 10,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(10),
            KeyCode::Home => self.first = 0,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(INTERVALS.1),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(INTERVALS.0),
            _ => {}
        }
    }

    /// Chooses a device; beyond the last and before the first lie all of them.
    fn choose(&mut self, device: Option<i32>, devices: i32) {
        self.choice.device = device.filter(|device| (0..devices).contains(device));
        self.first = 0;
    }
}
