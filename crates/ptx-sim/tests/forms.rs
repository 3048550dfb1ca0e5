//! The page that lists all instructions is what the decoder says.

use std::fmt::Write as _;
use std::path::Path;

use ptx_sim::{FormStatus, forms};

fn page() -> String {
    let mut page = String::from(
        "# Instructions of PTX\n\nWhat `ptx-sim`, and so the simulated GPU, executes. This page is written from the decoder's table: \
         `PTX_SIM_WRITE_FORMS=1\ncargo test -p ptx-sim --test forms` writes it, and the same test compares it. A kernel that uses what is \
         not supported is refused when\nit is asked for, with the place of each such instruction; the other kernels of its module are not.\n\n\
         | instruction | supported | remarks |\n|---|---|---|\n",
    );
    for (name, status, note) in forms() {
        let supported = if status == FormStatus::Supported { "yes" } else { "no" };
        let _ = writeln!(page, "| `{name}` | {supported} | {note} |");
    }
    page
}

#[test]
fn the_page_is_what_the_decoder_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptx.md");
    if std::env::var_os("PTX_SIM_WRITE_FORMS").is_some() {
        std::fs::write(&path, page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("there is a page");
    assert_eq!(written, page(), "run it with PTX_SIM_WRITE_FORMS=1");
}
