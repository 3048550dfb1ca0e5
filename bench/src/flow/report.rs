//! What the bench of streams and graphs prints: lines while it runs, one JSON object at the end.

use crate::figures::Figures;

/// One figure of ours beside others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// Nanoseconds.
    pub(crate) ours_ns: f64,
    /// The raw driver's calls that do the same, where there are any, and their nanoseconds.
    pub(crate) raw: Option<(&'static str, f64)>,
    /// Name of PyTorch's figure, and its nanoseconds where they are known.
    pub(crate) torch: Option<(String, Option<f64>)>,
}

impl Row {
    /// A row with nothing beside it yet.
    #[must_use]
    pub(crate) fn new(name: impl Into<String>, ours_ns: f64) -> Self {
        Self { name: name.into(), ours_ns, raw: None, torch: None }
    }

    /// The same beside the raw driver.
    #[must_use]
    pub(crate) fn raw(self, name: &'static str, ns: f64) -> Self {
        Self { raw: Some((name, ns)), ..self }
    }

    /// The same with the name of PyTorch's figure.
    #[must_use]
    pub(crate) fn torch(self, figure: impl Into<String>) -> Self {
        Self { torch: Some((figure.into(), None)), ..self }
    }

    /// The same with PyTorch's figure, if that is known.
    #[must_use]
    pub(crate) fn beside(mut self, figures: &Figures) -> Self {
        if let Some((name, ns)) = &mut self.torch {
            *ns = figures.get(name);
        }
        self
    }

    /// Our time as a multiple of the raw driver's.
    fn of_raw(&self) -> Option<f64> {
        self.raw.map(|(_, ns)| self.ours_ns / ns)
    }

    fn torch_ns(&self) -> Option<f64> {
        self.torch.as_ref().and_then(|(_, ns)| *ns)
    }

    /// PyTorch's time as a multiple of ours.
    fn of_torch(&self) -> Option<f64> {
        self.torch_ns().map(|ns| ns / self.ours_ns)
    }

    /// The row as a line of the table.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let number = |value: Option<f64>, digits| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let (raw_name, raw_ns) = self.raw.map_or(("-", None), |(name, ns)| (name, Some(ns)));
        format!(
            "{:<36} {:>12.1} {raw_name:>32} {:>12} {:>9} {:>12} {:>9}",
            self.name,
            self.ours_ns,
            number(raw_ns, 1),
            number(self.of_raw(), 3),
            number(self.torch_ns(), 1),
            number(self.of_torch(), 2)
        )
    }

    fn json(&self) -> String {
        let number = |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.4}"));
        format!(
            r#"{{"name":"{}","ours_ns":{:.2},"raw_ns":{},"ours_over_raw":{},"torch_ns":{},"ratio":{}}}"#,
            self.name,
            self.ours_ns,
            number(self.raw.map(|(_, ns)| ns)),
            number(self.of_raw()),
            number(self.torch_ns()),
            number(self.of_torch())
        )
    }
}

/// The head of the table.
#[must_use]
pub(crate) fn head() -> String {
    format!(
        "{:<36} {:>12} {:>32} {:>12} {:>9} {:>12} {:>9}",
        "", "ours ns", "raw driver", "ns", "ours/raw", "PyTorch ns", "its/ours"
    )
}

/// All rows as one object.
#[must_use]
pub(crate) fn json(rows: &[Row]) -> String {
    format!("{{\"rows\":[{}]}}", rows.iter().map(Row::json).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_it_stands_beside() {
        let row = Row::new("event record", 100.0).raw("cuEventRecord", 80.0).torch("event_record");
        assert!(row.line().contains("1.250") && row.line().ends_with('-'), "{}", row.line());
        let known = Row { torch: Some(("event_record".to_owned(), Some(250.0))), ..row };
        assert!(known.line().ends_with("2.50"), "{}", known.line());
        let expected = r#"{"rows":[{"name":"event record","ours_ns":100.00,"raw_ns":80.0000,"ours_over_raw":1.2500,"torch_ns":250.0000,"ratio":2.5000}]}"#;
        assert_eq!(json(&[known]), expected);
    }
}
