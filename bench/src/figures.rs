//! Figures that another program has printed, one a line: name, tabulator, nanoseconds. The file of `--figures`.

use std::collections::BTreeMap;
use std::path::Path;

/// Why the file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FiguresError {
    /// It cannot be read.
    #[error("cannot read the figures in `{path}`: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// No line has a name and a number.
    #[error("`{path}` holds no figures; expected lines of a name, a tabulator and a number")]
    Empty {
        /// The file.
        path: String,
    },
}

/// Figures by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Reads a file. Lines of another form are passed over: they are messages of the program.
    ///
    /// # Errors
    /// The file cannot be read or has no figures.
    pub(crate) fn read(path: &Path) -> Result<Self, FiguresError> {
        let name = path.display().to_string();
        let text = std::fs::read(path).map_err(|source| FiguresError::Read { path: name.clone(), source })?;
        let figures = Self::parse(&String::from_utf8_lossy(&text));
        if figures.0.is_empty() { Err(FiguresError::Empty { path: name }) } else { Ok(figures) }
    }

    fn parse(text: &str) -> Self {
        let figures = text.lines().filter_map(|line| {
            let (name, figure) = line.split_once('\t')?;
            let figure: f64 = figure.trim().parse().ok()?;
            (figure.is_finite() && figure > 0.0).then(|| (name.to_owned(), figure))
        });
        Self(figures.collect())
    }

    /// The figure of that name.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_picked_out_of_messages() {
        let figures =
            Figures::parse("warning: x\nalloc_free_pair_512B\t57.0\ndone\t0\nbad\tfast\nchurn_live_100\t1e2\n");
        assert_eq!(figures.get("alloc_free_pair_512B"), Some(57.0));
        assert_eq!(figures.get("churn_live_100"), Some(100.0));
        assert_eq!((figures.get("done"), figures.get("bad")), (None, None));
    }

    #[test]
    fn a_file_of_no_use_is_said() {
        let error = Figures::read(Path::new("/there/is/no/file")).unwrap_err();
        assert!(matches!(error, FiguresError::Read { .. }), "{error}");
        let error = Figures::read(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, FiguresError::Empty { .. }), "{error}");
    }
}
