//! Checks that every name marked as done has an example that the tests compile and run.
//!
//! An example lists the names that it shows in a string, separated by blanks: a name of a section by module is
//! qualified with the module (`torch.cuda.nccl.broadcast`), any other is written as on the page. The example's file
//! must also use the item itself.

use std::path::Path;

use super::page::{Row, State};
use super::words::Words;
use crate::{Result, read};

/// Folder of the examples.
pub(crate) const FOLDER: &str = "crates/cuda-api/tests/documentation";

/// Words of the examples, by file.
#[derive(Debug, Default)]
pub(crate) struct Shown(Vec<Words>);

impl Shown {
    /// Reads the files of examples.
    ///
    /// # Errors
    /// The folder or a file cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let entries = std::fs::read_dir(root.join(FOLDER)).map_err(|error| format!("cannot list {FOLDER}: {error}"))?;
        let texts = entries.flatten().map(|entry| read(&entry.path())).collect::<Result<Vec<_>>>()?;
        Ok(Self::of(texts.iter().map(String::as_str)))
    }

    fn of<'a>(files: impl Iterator<Item = &'a str>) -> Self {
        let split = |mut words: Words| {
            words.texts = words.texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
            words
        };
        Self(files.map(|text| split(Words::of(text))).collect())
    }

    /// Returns what the row of a done name lacks. One example covers the rows of other sections about the same item;
    /// `item` is the item's name in Rust, if the row is about one.
    pub(crate) fn fault(&self, row: &Row<'_>, rows: &[Row<'_>], item: Option<&str>) -> Option<String> {
        if row.state != State::Done {
            return None;
        }
        let is_same = |other: &&Row<'_>| other.name == row.name && other.file() == row.file();
        let names: Vec<String> = rows.iter().filter(is_same).map(full_name).collect();
        let fits = |text: &String| {
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(head) => text.starts_with(head),
                None => text == name,
            })
        };
        let mut naming = self.0.iter().filter(|words| words.texts.iter().any(fits)).peekable();
        if naming.peek().is_none() {
            return Some(format!("is said to be done, but no example in {FOLDER} shows `{}`", full_name(row)));
        }
        let item = item?;
        let is_used = naming.any(|words| words.names.contains(item));
        (!is_used).then(|| format!("has an example in {FOLDER} that does not use `{item}`"))
    }
}

/// Returns the name of a row, qualified with its module if its section is a module.
fn full_name(row: &Row<'_>) -> String {
    let module = row.section.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    module.map_or_else(|| row.name.to_owned(), |module| format!("{module}.{}", row.name))
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use super::*;

    const PAGE: &str = "\
## `torch.cuda`
| `device_of` | done | `device.rs` | `t.rs` |
| `is_available` | done | `device.rs` | `t.rs` |
| `later` | not yet | | |
## `torch.cuda.memory`
| `is_available` | done | `device.rs` | `t.rs` |
## `torch.cuda.nccl`
| `is_available` | done | `nccl.rs` | `t.rs` |
## Environment variables
| `TORCH_NCCL_*` | done | `nccl.rs` | `t.rs` |
";

    fn faults(example: &str) -> Vec<String> {
        let rows = page::rows(PAGE).unwrap();
        let shown = Shown::of(std::iter::once(example));
        let item = |row: &Row<'_>| (!row.name.ends_with('*')).then(|| row.name.to_owned());
        rows.iter().filter_map(|row| shown.fault(row, &rows, item(row).as_deref())).collect()
    }

    #[test]
    fn each_row_that_is_done_needs_an_example() {
        let whole = r#"(
            "torch.cuda.device_of torch.cuda.is_available", || device_of + is_available);
            ("torch.cuda.nccl.is_available", || is_available()); ("TORCH_NCCL_BLOCKING_WAIT", "1")"#;
        assert_eq!(faults(whole), [""; 0]);
        let without = |name: &str| faults(&whole.replace(name, "other"));
        assert!(without("torch.cuda.device_of")[0].contains("no example"));
        assert_eq!(without("torch.cuda.is_available").len(), 2, "of two sections");
        assert_eq!(without("torch.cuda.nccl.is_available").len(), 1);
        assert_eq!(without("TORCH_NCCL_BLOCKING_WAIT").len(), 1);
        assert!(without("|| device_of")[0].contains("does not use `device_of`"));
    }
}
