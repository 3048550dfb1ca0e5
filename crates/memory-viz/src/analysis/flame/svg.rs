//! A flame graph as an SVG image: a box for each frame, as wide as the bytes beneath it, on the box of its caller.
//!
//! The image needs no script and no network; pointing at a box shows its name and bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::analysis::human_bytes;

const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
const TITLE: usize = 30;

/// Boxes narrower than this are left out: they could not be seen.
const NARROWEST: f64 = 0.1;

/// Lines nest at most this deep; what is deeper is counted with the box it stands on.
const DEPTH_MAX: usize = 256;

#[derive(Default)]
struct Node<'lines> {
    bytes: u64,
    above: BTreeMap<&'lines str, Node<'lines>>,
}

/// Draws lines of names separated by `;`, a space, and bytes. A line that is not of this form is passed over.
#[must_use]
pub fn svg(lines: &str, title: &str) -> String {
    let mut root = Node::default();
    for line in lines.lines() {
        let Some((names, bytes)) = line.rsplit_once(' ') else { continue };
        let Ok(bytes) = bytes.parse::<u64>() else { continue };
        root.bytes = root.bytes.saturating_add(bytes);
        let mut node = &mut root;
        for name in names.split(';').take(DEPTH_MAX) {
            node = node.above.entry(name).or_default();
            node.bytes = node.bytes.saturating_add(bytes);
        }
    }
    let rows = depth(&root);
    let height = TITLE + rows * ROW + 10;
    let mut image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"20\" font-size=\"14\" text-anchor=\"middle\">{}</text>\n",
        WIDTH / 2.0,
        escaped(title)
    );
    let y = TITLE + (rows - 1) * ROW;
    draw(&mut image, "all", &root, 0.0, y, share(WIDTH, root.bytes.max(1)));
    image.push_str("</svg>\n");
    image
}

fn depth(node: &Node<'_>) -> usize {
    1 + node.above.values().map(depth).max().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a width is a fraction of the image")]
fn share(width: f64, bytes: u64) -> f64 {
    width / bytes as f64
}

#[expect(clippy::cast_precision_loss, reason = "a width is a fraction of the image")]
fn draw(image: &mut String, name: &str, node: &Node<'_>, x: f64, y: usize, scale: f64) {
    let width = node.bytes as f64 * scale;
    if width < NARROWEST {
        return;
    }
    let hue = 20 + name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 40;
    let name = escaped(name);
    let _ = write!(
        image,
        "<g><title>{name}: {} ({} bytes)</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" \
         fill=\"hsl({hue},85%,65%)\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
        human_bytes(node.bytes),
        node.bytes,
        ROW - 1
    );
    if width > 40.0 {
        // The part of the name that does not fit is cut off by an image of the box's size.
        let _ = write!(
            image,
            "<svg x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{ROW}\"><text x=\"3\" y=\"12\">{name}</text></svg>",
            width - 3.0
        );
    }
    image.push_str("</g>\n");
    let mut x = x;
    for (name, above) in &node.above {
        draw(image, name, above, x, y.saturating_sub(ROW), scale);
        x += above.bytes as f64 * scale;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn boxes_are_as_wide_as_their_bytes_and_stand_on_their_callers() {
        let image = svg("main;a<b> 300\nmain;c 100\nno number\nmain x\n", "a & b");
        assert!(image.contains("<title>all: 400 B (400 bytes)</title><rect x=\"0.00\" y=\"64\" width=\"1200.00\""));
        assert!(
            image.contains("<title>a&lt;b&gt;: 300 B (300 bytes)</title><rect x=\"0.00\" y=\"30\" width=\"900.00\"")
        );
        assert!(image.contains("<title>c: 100 B (100 bytes)</title><rect x=\"900.00\" y=\"30\" width=\"300.00\""));
        assert!(image.contains(">a &amp; b</text>"));
        assert_eq!(image.matches("<g>").count(), image.matches("</g>").count());
    }

    #[test]
    fn no_lines_are_an_image_too() {
        assert!(svg("", "").ends_with("</svg>\n"));
    }
}
