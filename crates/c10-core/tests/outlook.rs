//! What is said about a request before it is made is what becomes of it.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use c10_core::{RequestAnswer, RequestOutlook};
use common::{DEVICE, Rig, config};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

#[test]
fn reasons_are_told_in_plain_words() {
    let rig = Rig::new(config().capacity(100 * MIB));
    let memory = rig.runtime.memory();
    let (main, side) = (rig.runtime.streams().default(DEVICE).unwrap(), rig.stream());
    let held: Vec<u64> = (0..4).map(|_| memory.alloc(5 * MIB, &main).unwrap()).collect();
    let other = memory.alloc(12 * MIB, &side).unwrap();
    memory.free(other).unwrap();
    memory.free(held[0]).unwrap();
    memory.free(held[2]).unwrap();
    let small = memory.outlook(4 * MIB, &main).unwrap();
    assert_eq!((small.answer, small.largest_free, small.free), (RequestAnswer::Cached, 5 * MIB, 10 * MIB));
    assert_eq!(small.to_string(), "4.00 MiB would come from the cache of device 0.");
    let large = memory.outlook(90 * MIB, &main).unwrap();
    assert_eq!(large.answer, RequestAnswer::OutOfMemory);
    let text = large.to_string();
    assert!(text.starts_with("90.00 MiB cannot be had: device 0 has"), "{text}");
    assert!(text.contains("12.00 MiB is free for other streams."), "{text}");
    assert!(text.contains("10.00 MiB is free for this stream, in pieces that are too small"), "{text}");
    let after = memory.outlook(large.device_free + 8 * MIB, &main).unwrap();
    assert_eq!((after.answer, after.releasable), (RequestAnswer::AfterRelease, 12 * MIB));
    let fresh = memory.outlook(30 * MIB, &main).unwrap();
    assert_eq!((fresh.answer, fresh.segment, fresh.rounded), (RequestAnswer::NewMemory, 30 * MIB, 30 * MIB));
    memory.set_fraction(0.5, DEVICE).unwrap();
    let limited = memory.outlook(28 * MIB, &main).unwrap();
    assert_eq!((limited.answer, limited.allowed), (RequestAnswer::AfterRelease, Some(18 * MIB)));
    assert!(limited.to_string().contains("the limit leaves 18.00 MiB"));
    assert!(memory.outlook(u64::MAX, &main).is_err());
}

/// What became of a request, by the figures.
fn outcome(rig: &Rig, ask: impl FnOnce() -> Option<u64>) -> (RequestAnswer, Option<u64>) {
    let stats = || rig.runtime.memory().stats(DEVICE).unwrap();
    let before = stats();
    let address = ask();
    let after = stats();
    let answer = match address {
        None => RequestAnswer::OutOfMemory,
        Some(_) if after.num_alloc_retries > before.num_alloc_retries => RequestAnswer::AfterRelease,
        Some(_) if after.num_device_alloc > before.num_device_alloc => RequestAnswer::NewMemory,
        Some(_) => RequestAnswer::Cached,
    };
    (answer, address)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_is_what_happens(
        steps in proptest::collection::vec((any::<bool>(), prop_oneof![1..3 * MIB, 1..60 * MIB], 0..2_usize, any::<usize>()), 1..80),
        divisions in prop_oneof![Just(""), Just("roundup_power2_divisions:4"), Just("large_segment_size_mb:32")],
        fraction in prop_oneof![Just(1.0), Just(0.6)],
    ) {
        let rig = Rig::new(config().capacity(160 * MIB));
        let memory = rig.runtime.memory();
        memory.set_settings(divisions).unwrap();
        memory.set_fraction(fraction, DEVICE).unwrap();
        let streams = [rig.runtime.streams().default(DEVICE).unwrap(), rig.stream()];
        let mut live: Vec<u64> = Vec::new();
        for (frees, bytes, stream, which) in steps {
            if frees && !live.is_empty() {
                memory.free(live.swap_remove(which % live.len())).unwrap();
                continue;
            }
            let said: RequestOutlook = memory.outlook(bytes, &streams[stream]).unwrap();
            let (happened, address) = outcome(&rig, || memory.alloc(bytes, &streams[stream]).ok());
            prop_assert_eq!(said.answer, happened, "{:?}", said);
            live.extend(address);
        }
        for address in live {
            memory.free(address).unwrap();
        }
        prop_assert!(rig.runtime.is_valid());
    }
}
