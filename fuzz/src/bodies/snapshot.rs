//! Snapshot files: pickles and JSON that anybody may hand over.
//!
//! What must hold: no file makes a reader panic or go on for long; what is read is written so that it reads the same
//! again, in both formats; and every analysis and the page take whatever was read.

use memory_viz::page::{Page, page};
use memory_viz::{Limits, Snapshot, analysis, file};

/// Small, so that an input that multiplies itself ends soon.
const LIMITS: Limits = Limits { bytes_max: 1 << 20, held_ratio: 8, depth_max: 32 };

/// Runs one input.
///
/// # Errors
/// What was written is not what was read.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    one(bytes)?;
    for sample in SAMPLES {
        one(&changed(sample.to_vec(), bytes))?;
        if let Ok(snapshot) = file::parse(sample) {
            one(&changed(pickled(&snapshot)?, bytes))?;
        }
    }
    Ok(())
}

/// Whole snapshots, of which the input changes a few bytes: most of what is made at random ends at its first byte.
const SAMPLES: [&[u8]; 3] = [
    include_bytes!("../../corpus/snapshot/segment.json"),
    include_bytes!("../../corpus/snapshot/trace.json"),
    include_bytes!("../../corpus/snapshot/settings.json"),
];

/// A file with up to four bytes changed: each as three bytes of the input say, a place and what stands there.
fn changed(mut file: Vec<u8>, input: &[u8]) -> Vec<u8> {
    for three in input.chunks_exact(3).take(4) {
        let place = usize::from(three[0]) << 8 | usize::from(three[1]);
        let length = file.len();
        if let Some(byte) = file.get_mut(place % length.max(1)) {
            *byte = three[2];
        }
    }
    file
}

fn one(bytes: &[u8]) -> Result<(), String> {
    let Ok(snapshot) = file::parse_with(bytes, &LIMITS) else { return Ok(()) };
    let pickle = pickled(&snapshot)?;
    let again = file::parse(&pickle).map_err(|error| format!("our own pickle is refused: {error}"))?;
    if pickled(&again)? != pickle {
        return Err("a pickle that is read and written again is another".to_owned());
    }
    let mut json = Vec::new();
    file::json_to(&again, &mut json).map_err(|error| error.to_string())?;
    let from_json = file::parse(&json).map_err(|error| format!("our own JSON is refused: {error}"))?;
    if from_json.segments != again.segments || from_json.device_traces != again.device_traces {
        return Err("JSON that is read is not what was written".to_owned());
    }
    let report = analysis::report(&again) + &analysis::compare_report(&again, &from_json);
    let flame = analysis::flame::segments(&again) + &analysis::flame::memory(&again);
    let image = analysis::flame::svg(&flame, "snapshot");
    let html = page(&Page { snapshot: &again, title: "snapshot", before: Some((&snapshot, "before")) });
    if report.is_empty() || !image.ends_with("</svg>\n") || !html.ends_with("</html>\n") {
        return Err("an analysis was not finished".to_owned());
    }
    Ok(())
}

fn pickled(snapshot: &Snapshot) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file::pickle_to(snapshot, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
