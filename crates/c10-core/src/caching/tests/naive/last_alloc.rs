//! Scripts that are mostly about the block that was allocated last: it is used on other streams, freed, waits, and is
//! asked for again, while nobody looks; and now and then something else happens to its shard.

use super::*;
use crate::caching::shard::Stage;

/// What notes about the last allocation were met with: the stage, whether the slot is marked, and whether it was undone.
type Met = BTreeSet<(&'static str, bool, bool)>;

/// Notes the stages that shards are in, without flushing their notes.
fn meet(allocator: &CachingAllocator, met: &mut Met) {
    for number in 0..allocator.shared.shard_count() {
        let Some(shard) = allocator.shared.shard(remote::ShardId(number)) else { continue };
        let last = *shard.lock().last();
        let stage = match last.stage {
            Stage::Allocated => "allocated",
            Stage::Used(_) => "used",
            Stage::Waiting => "waiting",
            Stage::Dormant => "dormant",
        };
        met.insert((stage, last.marked, last.undone_count() > 0));
    }
}

/// Three steps of four go round: as much again or on one of two streams, used on another, freed, events pass.
fn script(random: &mut Pcg32) -> Vec<Quad> {
    let mut next = 0;
    let mut step = || {
        let [kind, a, b, c]: Quad = random.random();
        if random.random_ratio(1, 4) {
            return [kind, a, b, c];
        }
        next += 1;
        // Mostly one stream uses what others have.
        let user = if a % 4 > 0 { 2 } else { a / 4 % 5 };
        match next % 4 {
            1 if a % 2 == 0 => [0, 8, b, c],
            1 => [0, 3, b % 2, 1],
            2 => [21, a, (user << 3) | (b % 8), 0],
            3 => [12, 2, b, c],
            _ => [24, user, if b % 4 > 0 { 3 } else { b }, c],
        }
    };
    (0..300).map(|_| step()).collect()
}

/// Looked at after each step, after some, or at the end only, by one thread or by two: the figures are the same.
#[test]
fn what_is_noted_of_the_last_allocation_is_what_the_naive_allocator_does() {
    let mut met = Met::new();
    for seed in 0..240_u64 {
        let mut random = random(seed);
        let way = Way {
            options: random.random_range(0..OPTIONS.len()),
            look_each: *[1, 4, 17, 1000].choose(&mut random).unwrap(),
            other_hand: *[0, 0, 1, 4].choose(&mut random).unwrap(),
            changes: random.random(),
        };
        let script = script(&mut random);
        let fought = fight(way, |duel| {
            for (at, quad) in script.iter().enumerate() {
                duel.step(quad).map_err(|difference| format!("step {at}: {difference}"))?;
                meet(duel.allocator, &mut met);
                if (at + 1) % way.look_each == 0 {
                    duel.look().map_err(|difference| format!("after step {at}: {difference}"))?;
                }
            }
            duel.look().map_err(|difference| format!("at the end: {difference}"))
        });
        assert_eq!(fought, Ok(()), "seed {seed}, {way:?}");
    }
    println!("met {met:?}");
    // Each that is possible: what is used or waits is marked, what is dormant was undone, and so was what is marked in vain.
    let possible = [
        ("dormant", false, true),
        ("dormant", true, true),
        ("allocated", false, false),
        ("allocated", false, true),
        ("allocated", true, true),
        ("used", true, false),
        ("used", true, true),
        ("waiting", true, false),
        ("waiting", true, true),
    ];
    assert_eq!(met, Met::from(possible));
}

/// A block that fills a hole has waited and is free for a moment, and then fills the hole again. Memory of another stream,
/// freed by another thread before, is free at that moment too: that is a peak, though its shard has not applied the free.
#[test]
fn a_remote_free_before_a_block_had_waited_makes_a_peak_with_it() {
    fight(PLAIN, |duel| {
        let (far, _rest) = (duel.alloc(16, 1000), duel.alloc(16, 1000));
        let (hole, _rest) = (duel.alloc(0, 1000), duel.alloc(0, 1000));
        // Room below the other peaks, so that nothing of what others have is needed.
        duel.alloc(0, 100_000);
        let more = [0; 6].map(|stream| duel.alloc(stream, 1000));
        for address in more.into_iter().rev() {
            duel.both(Step::Free(address), false, 1).unwrap();
        }
        duel.both(Step::Free(hole), false, 1).unwrap();
        assert_eq!(duel.alloc(0, 1000), hole);
        duel.both(Step::Record { address: hole, stream: 32 }, false, 1).unwrap();
        duel.both(Step::Free(hole), false, 1).unwrap();
        duel.pass(32, 1);
        duel.both(Step::Free(far), true, 1).unwrap();
        let mut met = Met::new();
        meet(duel.allocator, &mut met);
        assert!(met.contains(&("waiting", true, false)), "{met:?}");
        assert_eq!(duel.alloc(0, 1000), hole);
        assert_eq!(duel.look(), Ok(()));
        assert_eq!(duel.allocator.stats(DEVICE).unwrap().inactive_split.all.peak, 4);
    });
}
