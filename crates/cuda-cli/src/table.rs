//! Tables of text that give up columns where they have too little room.
//!
//! **Invariant:** no line is wider than the room that is given.

use ratatui::text::Span;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Whether its cells stand at the right, as numbers do.
    pub(crate) is_number: bool,
    /// Columns with the highest rank are given up first; those of rank 0 never.
    pub(crate) rank: u8,
}

/// A column of texts.
pub(crate) const fn words(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: false, rank }
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: true, rank }
}

/// Columns and rows of cells.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Vec<String>>,
}

/// Blanks between two columns.
const GAP: usize = 2;

/// Places of the last column that are worth more than another column.
const LAST: usize = 12;

fn width(text: &str) -> usize {
    Span::raw(text).width()
}

impl Table {
    /// The titles, then a line for each row, in at most `room` places.
    pub(crate) fn lines(&self, room: Option<usize>) -> Vec<String> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width_of(column)).collect();
        let room = room.unwrap_or(usize::MAX);
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        while self.needs(&shown, &widths) > room && self.give_up(&mut shown) {}
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_owned()).collect();
        std::iter::once(&titles).chain(&self.rows).map(|row| self.line(row, &shown, &widths, room)).collect()
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
        let title = self.columns.get(column).map_or(0, |column| width(column.title));
        cells.chain([title]).max().unwrap_or(0)
    }

    /// Places that the shown columns take. Long texts in the last one may be cut.
    fn needs(&self, shown: &[usize], widths: &[usize]) -> usize {
        let place = |position: &usize| {
            let wide = widths.get(*position).copied().unwrap_or(0);
            let may_be_cut = *position + 1 == self.columns.len();
            if may_be_cut { wide.min(LAST) } else { wide }
        };
        shown.iter().map(place).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    }

    /// Gives up the shown column of the highest rank; `false` if none may go.
    fn give_up(&self, shown: &mut Vec<usize>) -> bool {
        let rank = |position: &usize| self.columns.get(*position).map_or(0, |column| column.rank);
        let highest = shown.iter().map(rank).max().unwrap_or(0);
        let last = shown.iter().rposition(|position| rank(position) == highest);
        last.filter(|_| highest > 0).map(|last| shown.remove(last)).is_some()
    }

    fn line(&self, row: &[String], shown: &[usize], widths: &[usize], room: usize) -> String {
        let mut line = String::new();
        for (place, &position) in shown.iter().enumerate() {
            let (Some(column), Some(cell), Some(&wide)) =
                (self.columns.get(position), row.get(position), widths.get(position))
            else {
                continue;
            };
            let pad = " ".repeat(wide.saturating_sub(width(cell)));
            line.push_str(if place == 0 { "" } else { "  " });
            let (before, after) = if column.is_number { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.push_str(before);
            line.push_str(cell);
            line.push_str(after);
        }
        cut(line.trim_end(), room)
    }
}

/// A line as far as there is room for it.
pub(crate) fn cut(line: &str, room: usize) -> String {
    let mut text = line.to_owned();
    while width(&text) > room {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[words("NAME", 0), number("BYTES", 1), words("NOTE", 2)];

    #[test]
    fn columns_go_by_rank_and_lines_are_cut_last() {
        let rows = vec![
            vec!["a".to_owned(), "12".to_owned(), "long note".to_owned()],
            vec!["größe".to_owned(), "7".to_owned(), String::new()],
        ];
        let table = Table { columns: COLUMNS, rows };
        assert_eq!(table.lines(None), ["NAME   BYTES  NOTE", "a         12  long note", "größe      7"]);
        assert_eq!(table.lines(Some(23)), ["NAME   BYTES  NOTE", "a         12  long note", "größe      7"]);
        assert_eq!(table.lines(Some(20)), ["NAME   BYTES", "a         12", "größe      7"]);
        assert_eq!(table.lines(Some(11)), ["NAME", "a", "größe"]);
        assert_eq!(table.lines(Some(3)), ["NAM", "a", "grö"]);
        assert_eq!(table.lines(Some(0)), ["", "", ""]);
    }
}
