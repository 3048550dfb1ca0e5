//! The page in a real browser: `cargo xtask viewer` downloads one and runs these tests. Otherwise `CHROMIUM` names the
//! browser; without it each test prints a message and passes, whichever browsers are installed.
//!
//! What the page's worker answers is compared with a plain model of the same history, and screenshots are left in the
//! folder for tests' files of the target folder.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod browser;
#[path = "../common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::time::Duration;

use browser::{Browser, browser};
use common::Random;
use memory_viz::analysis::{Timeline, holders, shortages, timeline};
use memory_viz::page::{Page, page};
use memory_viz::{Frame, Snapshot, file};
use serde_json::{Value, json};

/// Writes a page and opens it.
fn opened(name: &str, snapshot: &Snapshot, before: Option<&Snapshot>) -> Option<Browser> {
    let mut browser = browser()?;
    let html = page(&Page { snapshot, title: "run.pickle", before: before.map(|before| (before, "earlier.pickle")) });
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    file::write_text(&html, &path).unwrap();
    browser.open(&path);
    browser.wait("!!(window.viewer && viewer.times.shown && (viewer.state.tab === 2 || viewer.times.firstPicture)) || !!document.getElementById('message')?.textContent.includes('cannot')");
    assert_eq!(browser.faults(), Vec::<String>::new());
    Some(browser)
}

/// The lives at a moment in the order the page stacks them.
fn alive(timeline: &Timeline, moment: usize) -> impl Iterator<Item = usize> {
    let lives = timeline.lives.iter().enumerate();
    lives
        .filter(move |(_, life)| life.begin.is_none_or(|at| at < moment) && life.end.is_none_or(|at| at >= moment))
        .map(|(index, _)| index)
}

#[test]
fn the_worker_answers_as_a_plain_model_does() {
    let mut snapshot = common::training(20_000, 3);
    // A history that begins late: the first half is forgotten.
    snapshot.device_traces[0].drain(..9_000);
    let Some(mut browser) = opened("model", &snapshot, None) else { return };
    let timeline = timeline(&snapshot, 0);
    let entries = snapshot.device_traces[0].len() as u64;
    let mut random = Random::new(5);
    for _ in 0..150 {
        let moment = usize::try_from(random.below(entries + 1)).unwrap();
        let total: u64 = alive(&timeline, moment).map(|life| timeline.lives[life].size).sum();
        let height = random.below(total.max(1));
        let mut bottom = 0;
        let expected = alive(&timeline, moment).find(|life| {
            bottom += timeline.lives[*life].size;
            height < bottom
        });
        let found = browser.ask(&json!({"ask": "pick", "device": 0, "moment": moment, "height": height}));
        assert_eq!(found["life"].as_u64(), expected.map(|life| life as u64), "moment {moment}, height {height}");
        if let Some(life) = expected.map(|life| timeline.lives[life]) {
            assert_eq!(found["address"].as_u64(), Some(life.address));
            assert_eq!(found["stack"].as_u64(), Some(life.stack.index() as u64));
            assert_eq!(found["begin"].as_i64(), Some(life.begin.map_or(-1, |at| i64::try_from(at).unwrap())));
        }
        let held = browser.ask(&json!({"ask": "holders", "device": 0, "moment": moment}));
        assert_eq!(held["live"].as_u64(), Some(total));
        let rows: u64 = held["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
        assert_eq!(rows, total, "all stacks of the run fit the table");
    }
}

#[test]
fn every_view_shows_what_the_snapshot_holds() {
    let (before, after) = (common::training(4000, 7), common::training(30_000, 8));
    let Some(mut browser) = opened("views", &after, Some(&before)) else { return };
    let failed = shortages(&after).len();
    assert!(failed > 2);
    browser.screenshot("timeline");
    // A click holds the allocation under the pointer and shows its stack.
    browser.click(500, 700);
    browser.wait("document.querySelectorAll('#details ol.stack li').length > 0");
    assert!(browser.text("#details").contains("linear"));
    browser.key("2");
    browser.rest();
    browser.screenshot("fragmentation");
    browser.key("3");
    browser.rest();
    browser.move_to(600, 100);
    browser.wait("document.querySelector('#details h2').textContent.startsWith('Block of')");
    browser.screenshot("segments");
    browser.key("4");
    browser.wait("document.querySelectorAll('#table tbody tr').length > 5");
    browser.screenshot("holders");
    let held = browser.ask(&json!({"ask": "holders", "device": 0, "moment": after.device_traces[0].len()}));
    let expected: u64 = holders(&after).iter().map(|holder| holder.blocks).sum();
    let blocks: u64 = held["rows"].as_array().unwrap().iter().map(|row| row["blocks"].as_u64().unwrap()).sum();
    assert_eq!(blocks, expected, "the end of the history is what the segments hold");
    browser.key("5");
    browser.rest();
    assert_eq!(browser.number("document.querySelectorAll('#table .card').length"), failed as f64);
    assert!(browser.text("#table").contains("Why: "));
    browser.screenshot("shortages");
    browser.key("6");
    browser.rest();
    assert!(browser.text("#table").contains("earlier.pickle -> run.pickle"));
    browser.screenshot("compare");
    // To the last request that failed, in dark, with a search.
    browser.key("1");
    browser.key("p");
    browser.key("l");
    browser.key("/");
    browser.type_text("metrics");
    browser.wait("document.getElementById('found').textContent === '1 stacks'");
    browser.rest();
    browser.screenshot("search-dark");
    assert_eq!(browser.faults(), Vec::<String>::new());
    assert_eq!(browser.requests(), Vec::<String>::new(), "the page fetches nothing");
}

#[test]
fn a_snapshot_without_history_shows_its_segments() {
    let mut snapshot = common::training(2000, 12);
    snapshot.device_traces.clear();
    for segment in &mut snapshot.segments {
        segment.device = 2;
    }
    let Some(mut browser) = opened("segments", &snapshot, None) else { return };
    assert_eq!(browser.number("viewer.state.tab"), 2.0);
    assert_eq!(browser.number("viewer.state.device"), 2.0);
    assert_eq!(browser.number("viewer.state.rows.length"), snapshot.segments.len() as f64);
    browser.move_to(500, 60);
    browser.wait("!!document.querySelector('#details h2')?.textContent.startsWith('Block of')");
    browser.key("1");
    browser.rest();
    let held: u64 = holders(&snapshot).iter().map(|holder| holder.blocks).sum();
    let shown = browser.ask(&json!({"ask": "holders", "device": 2, "moment": 0}));
    let blocks: u64 = shown["rows"].as_array().unwrap().iter().map(|row| row["blocks"].as_u64().unwrap()).sum();
    assert_eq!(blocks, held);
    assert_eq!(browser.faults(), Vec::<String>::new());
    let Some(mut browser) = opened("empty", &Snapshot::default(), None) else { return };
    for key in ["1", "2", "3", "4", "5", "6", "w", "d", "n"] {
        browser.key(key);
        browser.rest();
    }
    assert_eq!(browser.faults(), Vec::<String>::new());
}

#[test]
fn keys_and_wheel_move_the_view() {
    let Some(mut browser) = opened("keys", &common::training(10_000, 4), None) else { return };
    let view = |browser: &mut Browser| {
        let view = browser.value("({...viewer.state.view})");
        let number = |name: &str| view[name].as_f64().unwrap();
        (number("from"), number("to"), number("low"), number("high"))
    };
    let whole = view(&mut browser);
    browser.key("w");
    let near = view(&mut browser);
    assert!((near.1 - near.0) / (whole.1 - whole.0) < 0.81);
    browser.key("d");
    assert!(view(&mut browser).0 > near.0);
    browser.wheel(500, 300, -400);
    let nearer = view(&mut browser);
    assert!(nearer.1 - nearer.0 < near.1 - near.0);
    browser.key("x");
    browser.rest();
    assert_eq!(browser.value("viewer.state.axis"), Value::from("time"));
    browser.screenshot("time");
    browser.key("x");
    browser.key("0");
    assert_eq!(view(&mut browser), whole);
    browser.key("?");
    assert!(browser.text("#keys").contains("all of the life of an allocation"));
    assert_eq!(browser.faults(), Vec::<String>::new());
}

#[test]
fn stacks_begin_at_the_programs_frame_until_all_are_asked_for() {
    let mut snapshot = common::training(500, 9);
    let frames = ["c10_core::api::allocate", "app::load", "std::rt::lang_start"].map(|name| {
        let (name, filename) = (snapshot.names.text(name), snapshot.names.text(""));
        snapshot.names.frame(Frame { name, filename, line: 0 })
    });
    let stack = snapshot.names.stack(&frames);
    snapshot.device_traces[0].iter_mut().for_each(|entry| entry.stack = stack);
    snapshot.segments.iter_mut().flat_map(|segment| &mut segment.blocks).for_each(|block| block.stack = stack);
    let before = common::training(500, 10);
    let Some(mut browser) = opened("frames", &snapshot, Some(&before)) else { return };
    browser.key("4");
    browser.rest();
    let table = browser.text("#table");
    assert!(table.contains("app::load") && !table.contains("c10_core") && !table.contains("lang_start"), "{table}");
    browser.key("f");
    browser.rest();
    let table = browser.text("#table");
    assert!(table.contains("c10_core::api::allocate") && table.contains("std::rt::lang_start"), "{table}");
    browser.key("6");
    browser.rest();
    assert!(browser.text("#table").contains("c10_core::api::allocate"));
    browser.key("f");
    browser.rest();
    let table = browser.text("#table");
    assert!(table.contains("app::load") && !table.contains("c10_core"), "{table}");
    assert_eq!(browser.faults(), Vec::<String>::new());
}

#[test]
fn names_in_a_snapshot_are_text_and_nothing_else() {
    let mut snapshot = common::training(500, 6);
    let evil = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"><!--";
    let frame = Frame { name: snapshot.names.text(evil), filename: snapshot.names.text(evil), line: 1 };
    let frame = snapshot.names.frame(frame);
    let stack = snapshot.names.stack(&[frame]);
    for entry in &mut snapshot.device_traces[0] {
        entry.stack = stack;
    }
    snapshot.allocator_settings.clear();
    let Some(mut browser) = opened("names", &snapshot, None) else { return };
    for key in ["3", "4", "5", "6", "1"] {
        browser.key(key);
        browser.rest();
    }
    browser.click(500, 700);
    browser.rest();
    assert_eq!(browser.value("document.title"), Value::from("run.pickle"));
    assert_eq!(browser.number("document.images.length"), 0.0);
}

#[test]
fn a_million_entries_open_in_three_seconds_and_pan_at_thirty_frames() {
    let snapshot = common::training(1_000_000, 9);
    let Some(mut browser) = opened("million", &snapshot, None) else { return };
    let first = browser.number("viewer.times.firstPicture");
    assert!(first < 3000.0, "the first picture after {first} ms");
    for (name, part) in [("whole", 1.0), ("tenth", 0.1), ("thousandth", 0.001)] {
        browser.value(&format!("(() => {{ fit(); zoom({part}, 0.5, false, 0); }})()"));
        browser.rest();
        let pan = "new Promise(done => { let frames = 0, worst = 0, last = performance.now(); const begin = last; \
                   const step = now => { move(frames % 120 < 60 ? 0.01 : -0.01, 0); frames++; \
                   worst = Math.max(worst, now - last); last = now; \
                   if (now - begin < 2000) requestAnimationFrame(step); else done([frames / (now - begin) * 1000, worst]); }; \
                   requestAnimationFrame(step); })";
        let measured = browser.value(pan);
        let (frames, worst) = (measured[0].as_f64().unwrap(), measured[1].as_f64().unwrap());
        println!("{name}: first picture {first:.0} ms, {frames:.0} frames a second, worst {worst:.0} ms");
        assert!(frames >= 30.0, "{name}: {frames} frames a second");
    }
    assert_eq!(browser.faults(), Vec::<String>::new());
    std::thread::sleep(Duration::from_millis(1));
}
