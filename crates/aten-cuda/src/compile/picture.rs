//! Reports as pictures: DOT for Graphviz, and a page of HTML that needs nothing else.
//!
//! **Invariant:** names and reasons are escaped, whatever they have in them.

use std::fmt::{self, Write as _};

use super::report::{KernelReport, ProgramReport, Report};

impl Report {
    /// The programs as a graph in Graphviz's language: kernels and calls are nodes, and an arrow is memory that one writes
    /// and another one reads.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].add(1)?.mm(&x[0])?.relu()?]));
    /// f.call(&[&Tensor::ones(&[4, 4], DType::F32, "cuda")?])?;
    /// let dot = f.report().to_dot();
    /// assert!(dot.starts_with("digraph compiled {") && dot.contains("p0k0 -> p0k1") && dot.contains("p0k1 -> p0k2"));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut text = String::new();
        written(dot(self, &mut text));
        text
    }

    /// A page of HTML: for each program its kernels, the bytes that each moves and saves, what was kept in memory and why,
    /// breaks, and why it was compiled anew. It loads nothing.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(1)?]));
    /// f.call(&[&Tensor::ones(&[100], DType::F32, "cuda")?])?;
    /// let page = f.report().to_html();
    /// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<td>mul + add</td>"));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut text = String::new();
        written(html(self, &mut text));
        text
    }
}

/// A `String` takes everything.
fn written(outcome: fmt::Result) {
    debug_assert!(outcome.is_ok(), "a text refused to grow");
}

fn dot(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(to, "digraph compiled {{\n  node [shape=box, fontname=monospace];")?;
    for (number, program) in report.programs.iter().enumerate() {
        writeln!(to, "  subgraph cluster_{number} {{\n    label=\"program {number}\";")?;
        for (at, kernel) in program.kernels.iter().enumerate() {
            let (shape, name) = (if kernel.is_call { "ellipse" } else { "box" }, quoted(&name(kernel)));
            let (read, written) = (kernel.read, kernel.written);
            let label = format!("{name}\\nreads {read} bytes\\nwrites {written} bytes");
            writeln!(to, "    p{number}k{at} [shape={shape}, label=\"{label}\"];")?;
        }
        arrows(program, number, to)?;
        writeln!(to, "  }}")?;
    }
    writeln!(to, "}}")
}

/// From the last writer of each memory to its readers.
fn arrows(program: &ProgramReport, number: usize, to: &mut String) -> fmt::Result {
    let mut writers = std::collections::BTreeMap::new();
    for (at, kernel) in program.kernels.iter().enumerate() {
        for slot in &kernel.inputs {
            if let Some(writer) = writers.get(slot) {
                writeln!(to, "    p{number}k{writer} -> p{number}k{at} [label=\"m{slot}\"];")?;
            }
        }
        writers.extend(kernel.outputs.iter().map(|&slot| (slot, at)));
    }
    Ok(())
}

fn name(kernel: &KernelReport) -> String {
    kernel.operations.join(" + ")
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn escaped(text: impl fmt::Display) -> String {
    let text = text.to_string();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

const STYLE: &str = "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}\
    td,th{border:1px solid #bbb;padding:3px 8px;text-align:right}td:nth-child(2){text-align:left}";

fn html(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(to, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Compiled function</title>")?;
    writeln!(to, "<style>{STYLE}</style></head><body>\n<h1>Compiled function</h1>")?;
    for (number, program) in report.programs.iter().enumerate() {
        let (operations, kernels) = (program.operations, program.kernels.len());
        writeln!(to, "<h2>Program {number}</h2>\n<p>{operations} operations, {kernels} kernels and calls; ")?;
        let (moved, unfused) = (program.moved(), program.unfused);
        writeln!(
            to,
            "they move {moved} bytes instead of {unfused}. A call has at most {} bytes at once.</p>",
            program.peak_bytes
        )?;
        table(program, to)?;
        let kept = program.kept.iter().map(|(name, kept)| format!("{name}: {kept}"));
        list("Copies for products", program.copies.iter().map(ToString::to_string), to)?;
        list("Products and what follows them", program.epilogues.iter().map(ToString::to_string), to)?;
        list("Written to memory", kept, to)?;
        list("Breaks", program.breaks.iter().map(ToString::to_string), to)?;
        list("Compiled anew, since", program.recompiled.iter().map(ToString::to_string), to)?;
        list("Shapes besides the first", program.resized.iter().map(ToString::to_string), to)?;
        list("No CUDA graph, since", program.not_graphed.iter().map(ToString::to_string), to)?;
        list("Called each time, since", program.called.iter().map(ToString::to_string), to)?;
    }
    writeln!(to, "<p>{} calls ran the function as it is.</p>\n</body></html>", report.uncompiled)
}

fn table(program: &ProgramReport, to: &mut String) -> fmt::Result {
    writeln!(to, "<table><tr><th></th><th>operations</th><th>reads</th><th>writes</th><th>saves</th></tr>")?;
    for kernel in &program.kernels {
        let (kind, name) = (if kernel.is_call { "call" } else { "kernel" }, escaped(name(kernel)));
        let (read, written, saved) = (kernel.read, kernel.written, kernel.saved());
        write!(to, "<tr><td>{kind}</td><td>{name}</td><td>{read}</td><td>{written}</td>")?;
        writeln!(to, "<td>{saved}</td></tr>")?;
    }
    writeln!(to, "</table>")
}

/// A list, unless it is empty.
fn list(title: &str, items: impl Iterator<Item = String>, to: &mut String) -> fmt::Result {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return Ok(());
    }
    writeln!(to, "<h3>{title}</h3>\n<ul>")?;
    for item in items {
        writeln!(to, "<li>{}</li>", escaped(item))?;
    }
    writeln!(to, "</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &'static str, inputs: Vec<usize>, outputs: Vec<usize>) -> KernelReport {
        let operations = vec![name];
        KernelReport { operations, read: 8, written: 8, unfused: 16, inputs, outputs, is_call: false, launches: 1 }
    }

    #[test]
    fn names_are_escaped_and_arrows_follow_memory() {
        let program = ProgramReport {
            operations: 2,
            kernels: vec![kernel("a<\"b\">&'", vec![0], vec![1]), kernel("c", vec![1], vec![2])],
            unfused: 32,
            breaks: Vec::new(),
            recompiled: Vec::new(),
            shapes: 1,
            resized: Vec::new(),
            kept: Vec::new(),
            copies: Vec::new(),
            epilogues: Vec::new(),
            arena_bytes: 0,
            arena_bound: 0,
            peak_bytes: 0,
            peak_bound: 0,
            not_graphed: None,
            called: Some("it <keeps> things"),
        };
        let report = Report { programs: vec![program], uncompiled: 0, graphs: 0 };
        let (dot, page) = (report.to_dot(), report.to_html());
        assert!(dot.contains("label=\"a<\\\"b\\\">&'\\nreads 8 bytes"), "{dot}");
        assert_eq!(dot.matches(" -> ").count(), 1, "{dot}");
        assert!(dot.contains("p0k0 -> p0k1 [label=\"m1\"]"), "{dot}");
        assert!(page.contains("<td>a&lt;&quot;b&quot;&gt;&amp;&#39;</td>"), "{page}");
        assert!(page.contains("<li>it &lt;keeps&gt; things</li>") && !page.contains("<h3>Breaks"), "{page}");
    }
}
