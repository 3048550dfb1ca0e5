//! The peer: a process that runs PyTorch's own allocator, is told what to do and answers line by line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::caching::tests::differential::script::{Pools, Script};

/// Snapshots are asked for after this many operations, and at the end.
const SNAPSHOT_EVERY: usize = 10;

/// Variables that would configure the peer.
const VARIABLES: [&str; 4] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"];

/// Where the program is.
pub(crate) struct Peer(pub(crate) PathBuf);

/// What it answered about one operation.
#[derive(Default, Debug)]
pub(crate) struct Reply {
    /// The outcome: a pointer, an error, or nothing.
    pub(crate) outcome: Vec<String>,
    /// Bytes that the device lends.
    pub(crate) used: u64,
    /// Every figure, in the order of [`crate::caching::tests::differential::ours::figures`].
    pub(crate) figures: Vec<i64>,
    /// Segments and how often pools are used, where that was asked for.
    pub(crate) layout: Option<Vec<String>>,
}

impl Peer {
    /// Runs a script in a process of its own; fewer replies than operations mean that the process died.
    pub(crate) fn run(&self, script: &Script) -> std::io::Result<Vec<Reply>> {
        let mut command = Command::new(&self.0);
        for name in VARIABLES {
            command.env_remove(name);
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = pipes.spawn()?;
        let mut input = process.stdin.take().expect("its input is a pipe");
        let text = commands(script);
        // The peer may be blocked on its output, or die, before it has read everything.
        let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let output = process.wait_with_output()?;
        writer.join().expect("writing does not panic");
        Ok(replies(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// The script with a question after each operation; the answer to `used` and the figures ends what belongs to it.
fn commands(script: &Script) -> String {
    let mut text = script.preamble() + "used\ns\n";
    let mut pools = Pools::default();
    for (index, op) in script.ops.iter().enumerate() {
        pools.admit(op);
        text += &format!("{op}\nused\n");
        if (index + 1).is_multiple_of(SNAPSHOT_EVERY) || index + 1 == script.ops.len() {
            text += "snap\n";
            pools.used().for_each(|pool| text += &format!("uc {} {}\n", pool.0, pool.1));
        }
        text += "s\n";
    }
    text
}

fn replies(text: &str) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut reply = Reply::default();
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("used", bytes) => reply.used = bytes.parse().unwrap_or(u64::MAX),
            ("seg" | "uc", _) => reply.layout.get_or_insert_default().push(line.trim_end().to_owned()),
            ("endsnap", _) => drop(reply.layout.get_or_insert_default()),
            _ if line.starts_with("{\"") => {
                reply.figures = numbers(line);
                replies.push(std::mem::take(&mut reply));
            }
            _ => reply.outcome.push(line.trim_end().to_owned()),
        }
    }
    // The first answers the preamble.
    replies.drain(..replies.len().min(1));
    replies
}

fn numbers(line: &str) -> Vec<i64> {
    let words = line.split(|letter: char| !letter.is_ascii_digit() && letter != '-');
    words.filter_map(|word| word.parse().ok()).collect()
}
