//! Figures as a process exports them: the text format of Prometheus, as far as `cuda-api` writes it.
//!
//! **Invariants:** a text is taken whole or refused with the number of the line that is wrong. Nothing in it can be
//! longer than the limits here, and no text of it has a character that a terminal would obey.

use std::fmt::Write as _;

/// Most bytes of a text.
pub(crate) const TEXT_MAX: usize = 1 << 20;
/// Most bytes of a line.
const LINE_MAX: usize = 512;
/// Most samples.
const SAMPLES_MAX: usize = 20_000;

/// A figure with what it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) metric: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: i64,
}

impl Figure {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn device(&self) -> Option<u32> {
        self.label("device")?.parse().ok()
    }
}

/// All figures of a process, in the order in which it told them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// Reads a text.
    ///
    /// # Errors
    /// The number of the first line that is no figure, from 1.
    pub(crate) fn parse(text: &str) -> Result<Self, usize> {
        let mut figures = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let figure = figure(line).filter(|_| figures.len() < SAMPLES_MAX).ok_or(index + 1)?;
            figures.push(figure);
        }
        Ok(Self(figures))
    }

    /// The process's own numbers of its devices.
    pub(crate) fn devices(&self) -> Vec<u32> {
        let mut devices: Vec<u32> = self.0.iter().filter_map(Figure::device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// A figure of a device, over all kinds of its memory.
    pub(crate) fn of_device(&self, metric: &str, device: u32) -> Option<i64> {
        let fits = |figure: &&Figure| {
            figure.metric == metric
                && figure.device() == Some(device)
                && figure.label("pool").is_none_or(|pool| pool == "all")
        };
        self.0.iter().find(fits).map(|figure| figure.value)
    }

    /// A figure of the process that belongs to no device.
    pub(crate) fn of_host(&self, metric: &str) -> Option<i64> {
        self.0.iter().find(|figure| figure.metric == metric && figure.labels.is_empty()).map(|figure| figure.value)
    }

    /// The identity of a device.
    pub(crate) fn uuid(&self, device: u32) -> Option<&str> {
        let mut infos = self.0.iter().filter(|figure| figure.metric == "torch_cuda_device_info");
        infos.find(|figure| figure.device() == Some(device)).and_then(|figure| figure.label("uuid"))
    }

    /// The text again, from what was understood of it.
    pub(crate) fn to_prometheus(&self) -> String {
        let (mut text, mut metric) = (String::new(), "");
        for figure in &self.0 {
            if figure.metric != metric {
                metric = &figure.metric;
                let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
                let _ = writeln!(text, "# TYPE {metric} {kind}");
            }
            let labels: Vec<String> = figure.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{metric}{labels} {}", figure.value);
        }
        text
    }
}

/// A line `name value` or `name{label="value",...} value`.
fn figure(line: &str) -> Option<Figure> {
    if line.len() > LINE_MAX {
        return None;
    }
    let (head, value) = line.rsplit_once(' ')?;
    let (metric, labels) = match head.split_once('{') {
        Some((metric, labels)) => (metric, labels.strip_suffix('}')?.split(',').map(label).collect::<Option<_>>()?),
        None => (head, Vec::new()),
    };
    let value = value.parse().ok()?;
    is_name(metric).then(|| Figure { metric: metric.to_owned(), labels, value })
}

fn label(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let value = value.strip_prefix('"')?.strip_suffix('"')?;
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    (is_name(name) && is_plain).then(|| (name.to_owned(), value.to_owned()))
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE torch_cuda_device_info gauge\ntorch_cuda_device_info{device=\"1\",uuid=\"GPU-1\"} 1\n\
        # TYPE torch_cuda_reserved_bytes gauge\ntorch_cuda_reserved_bytes{device=\"1\",pool=\"all\"} 2097152\n\
        torch_cuda_reserved_bytes{device=\"1\",pool=\"small_pool\"} -3\n\
        # TYPE torch_cuda_x_total counter\ntorch_cuda_x_total 7\n";

    #[test]
    fn a_text_is_understood_and_written_again() {
        let figures = Figures::parse(TEXT).unwrap();
        assert_eq!(figures.to_prometheus(), TEXT);
        assert_eq!((figures.devices(), figures.uuid(1), figures.uuid(0)), (vec![1], Some("GPU-1"), None));
        assert_eq!(figures.of_device("torch_cuda_reserved_bytes", 1), Some(2_097_152));
        assert_eq!(figures.of_device("torch_cuda_reserved_bytes", 0), None);
        assert_eq!((figures.of_host("torch_cuda_x_total"), figures.of_host("torch_cuda_y")), (Some(7), None));
        assert_eq!(Figures::parse(""), Ok(Figures::default()));
    }

    #[test]
    fn whatever_is_no_figure_is_refused_by_its_line() {
        let long = format!("a{} 1", "b".repeat(LINE_MAX));
        for bad in [
            "torch_cuda_x",
            "torch_cuda_x one",
            "torch_cuda_x 1.5",
            "torch_cuda_x 99999999999999999999",
            "1x 1",
            "x{} 1",
            "x{a=b} 1",
            "x{a=\"b\" 1",
            "x{a=\"\u{1b}[2J\"} 1",
            "x{a=\"b\\n\"} 1",
            "\u{1b}[2Jx 1",
            &long,
        ] {
            assert_eq!(Figures::parse(&format!("ok 1\n{bad}\nok 2\n")), Err(2), "{bad}");
        }
        let many = "x 1\n".repeat(SAMPLES_MAX + 1);
        assert_eq!(Figures::parse(&many), Err(SAMPLES_MAX + 1));
    }
}
