//! The picture of the live table.
//!
//! **Invariant:** a window of any size is drawn without a panic; one that is too small says so.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::plain;
use super::state::State;
use crate::machine::Machine;
use crate::readings::Readings;

/// The smallest window that is worth drawing.
const LEAST: (u16, u16) = (24, 8);

/// Places of the bar of a device's load.
const BAR: u32 = 10;

const HELP: &[&str] = &[
    "q, Esc     leave",
    "s          order processes by the next column",
    "0-9, < >   one device; a all devices",
    "p, space   let time stand still",
    "+ -        look less or more often",
    "up, down   move through the processes",
    "h, ?       this help",
    "",
    "ALLOCATED, RESERVED, PEAK, PINNED and OOMS are known of",
    "programs that run with TORCH_CUDA_EXPORT=1.",
];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, machine: Option<&Machine>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    let head = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines = vec![Line::styled(fill(&title(state, machine), area.width), head)];
    match machine {
        None => lines.push(Line::raw("looking ...")),
        Some(machine) => body(&mut lines, state, machine, area),
    }
    lines.truncate(usize::from(area.height) - 1);
    frame.render_widget(Paragraph::new(lines), area);
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    frame.render_widget(Line::styled(fill("q leave  s order  p pause  <> device  h help", area.width), head), foot);
    if state.shows_help {
        help(frame, area);
    }
}

fn title(state: &State, machine: Option<&Machine>) -> String {
    let when = if state.is_paused { "paused".to_owned() } else { format!("every {} s", state.interval.as_secs_f64()) };
    let machine = machine.map_or_else(String::new, |machine| format!("  {}", plain::title(machine)));
    format!("torch-cuda top  {when}  by {}{machine}", state.choice.sort.name())
}

fn body(lines: &mut Vec<Line<'static>>, state: &State, machine: &Machine, area: Rect) {
    let width = usize::from(area.width);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let bars = width >= 100;
    let table = plain::devices(machine, state.choice, |of| if bars { bar(of) } else { of.load_cell() });
    let chosen = machine.devices.iter().filter(|device| state.choice.shows(Some(device.number)));
    let styles = std::iter::once(bold).chain(chosen.map(|device| match &device.readings {
        Ok(of) if of.is_strained() => Style::new().fg(Color::Red),
        Ok(_) => Style::new(),
        Err(_) => Style::new().fg(Color::Yellow),
    }));
    lines.extend(table.lines(Some(width)).into_iter().zip(styles).map(|(line, style)| Line::styled(line, style)));
    let yellow = Style::new().fg(Color::Yellow);
    lines.extend(plain::notes(machine).iter().map(|note| Line::styled(crate::table::cut(note, width), yellow)));
    lines.push(Line::raw(""));
    let rows = state.choice.rows(machine);
    if rows.is_empty() {
        lines.push(Line::raw("no processes"));
        return;
    }
    let mut table = plain::processes(&rows).lines(Some(width)).into_iter();
    lines.extend(table.next().map(|titles| Line::styled(titles, bold)));
    // The last process stays on the screen, however often a key is pressed.
    lines.extend(table.skip(state.first.min(rows.len() - 1)).map(Line::raw));
}

/// A device's load as a bar and a number.
fn bar(of: &Readings) -> String {
    let Ok(percent) = of.load else { return of.load_cell() };
    let full = (percent.min(100) * BAR).div_ceil(100);
    let part = |sign: &str, count: u32| sign.repeat(count.try_into().unwrap_or(0));
    format!("{}{} {:>5}", part("█", full), part("░", BAR - full), of.load_cell())
}

/// A line that is as wide as the window.
fn fill(text: &str, width: u16) -> String {
    let width = usize::from(width);
    let text = crate::table::cut(text, width);
    format!("{text:<width$}")
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.len()).max().and_then(|width| u16::try_from(width + 4).ok()).unwrap_or(0);
    let height = u16::try_from(HELP.len() + 2).unwrap_or(0);
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let text: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(" keys ")), place);
}
