//! The coverage page as rows.

use crate::Result;

/// A row of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row<'page> {
    /// The heading above the table.
    pub(crate) section: &'page str,
    /// The line of the page, from 1.
    pub(crate) line: usize,
    /// The name in PyTorch.
    pub(crate) name: &'page str,
    pub(crate) state: State,
    /// What stands in backquotes in the third cell: the file, for a name that is done.
    pub(crate) place: Vec<&'page str>,
    /// The third cell: the reason, for a name that does not apply.
    pub(crate) remark: &'page str,
    /// The files in the last cell.
    pub(crate) tests: Vec<&'page str>,
}

impl Row<'_> {
    /// The file that the row gives for its item.
    pub(crate) fn file(&self) -> Option<&str> {
        self.place.iter().copied().find(|word| word.ends_with(".rs"))
    }
}

/// What a row says of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Done,
    NotYet,
    NotApplicable,
}

/// Reads the rows of all tables.
///
/// # Errors
/// A row has no known state, or not four cells; the first such.
pub(crate) fn rows(page: &str) -> Result<Vec<Row<'_>>> {
    let mut section = "";
    let mut rows = Vec::new();
    for (at, line) in page.lines().enumerate() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let Some((name, cells)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")) else { continue };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        let [state, remark, tests, ""] = cells.as_slice() else {
            return Err(format!("line {}: a row has a name, a state, a place and tests", at + 1));
        };
        let state = match *state {
            "done" => State::Done,
            "not yet" => State::NotYet,
            "not applicable" => State::NotApplicable,
            other => return Err(format!("line {}: there is no state `{other}`", at + 1)),
        };
        rows.push(Row { section, line: at + 1, name, state, place: quoted(remark), remark, tests: quoted(tests) });
    }
    Ok(rows)
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The sentence of the page that counts its rows.
pub(crate) fn count(rows: &[Row<'_>]) -> String {
    let of = |state| rows.iter().filter(|row| row.state == state).count();
    let (done, open, not) = (of(State::Done), of(State::NotYet), of(State::NotApplicable));
    format!("{done} rows are done, {open} are to come, {not} do not apply.")
}

/// The page with that sentence in place of the one that is there.
pub(crate) fn with_count(page: &str, count: &str) -> String {
    let end = " do not apply.";
    let is_digit = |letter: char| letter.is_ascii_digit();
    let Some(to) = page.find(end).map(|at| at + end.len()) else { return page.to_owned() };
    let Some(middle) = page[..to].rfind(" rows are done, ") else { return page.to_owned() };
    let from = page[..middle].trim_end_matches(is_digit).len();
    format!("{}{count}{}", &page[..from], &page[to..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_their_section() {
        let page = "## `torch.cuda`\n\n| name | state | where | tested in |\n|---|---|---|---|\n\
                    | `A.b` | done | `x.rs`: only `c` | `y.rs`, `z.rs` |\n## More\n| `C` | not applicable | after it | |\n";
        let rows = rows(page).unwrap();
        assert_eq!(
            rows[0],
            Row {
                section: "`torch.cuda`",
                line: 5,
                name: "A.b",
                state: State::Done,
                place: vec!["x.rs", "c"],
                remark: "`x.rs`: only `c`",
                tests: vec!["y.rs", "z.rs"],
            }
        );
        assert_eq!((rows[1].section, rows[1].remark), ("More", "after it"));
        assert_eq!(count(&rows), "1 rows are done, 0 are to come, 1 do not apply.");
    }

    #[test]
    fn the_count_is_replaced() {
        let page = "Words. 12 rows are done, 3 are to come, 4 do not apply.\nMore.";
        assert_eq!(with_count(page, "X."), "Words. X.\nMore.");
        assert_eq!(with_count("Words.", "X."), "Words.");
    }

    #[test]
    fn a_row_out_of_form_is_refused() {
        assert!(rows("| `A` | perhaps | | |").unwrap_err().contains("no state `perhaps`"));
        assert!(rows("\n| `A` | done |").unwrap_err().starts_with("line 2"));
    }
}
