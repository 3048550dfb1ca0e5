//! Groups of some ranks of a group.

use std::thread;
use std::time::Duration;

use aten_cuda::Tensor;
use cuda_dist::{Error, GroupOptions, ProcessGroup, ReduceOp};

use super::{options, ranks};

const TIME: Duration = Duration::from_secs(60);

fn part(group: &ProcessGroup, ranks: &[usize]) -> Option<ProcessGroup> {
    match group.new_group(ranks, &GroupOptions::default()) {
        Ok(part) => Some(part),
        Err(Error::NotInGroup { rank, .. }) => {
            assert_eq!(rank, group.rank());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn sum(group: &ProcessGroup, value: usize) -> i64 {
    let tensor = Tensor::from_slice(&[value as i64], &[1]).unwrap();
    group.all_reduce(&tensor, ReduceOp::Sum).unwrap().wait().unwrap();
    tensor.to_vec::<i64>().unwrap()[0]
}

#[test]
fn parts_compute_beside_each_other_and_beside_the_whole() {
    ranks(6, &options(TIME), |whole| {
        let rank = whole.rank();
        let parts = [part(&whole, &[4, 0, 2]), part(&whole, &[1, 3, 5]), part(&whole, &[0, 1])];
        let expected = [6, 9, 1];
        for (own, expected) in parts.iter().zip(expected) {
            if let Some(own) = own {
                assert_eq!(sum(own, rank), expected);
                assert_eq!(own.global_rank(own.rank()).unwrap(), rank);
                assert_eq!(own.group_rank(rank).unwrap(), own.rank());
            }
        }
        assert_eq!(sum(&whole, rank), 15);
        if let Some(even) = &parts[0] {
            assert_eq!((even.global_ranks(), even.name()), (&[0, 2, 4][..], "1"));
            assert!(matches!(even.group_rank(3), Err(Error::NotInGroup { rank: 3, .. })));
            assert!(matches!(even.global_rank(3), Err(Error::Argument(_))));
            // A part of the part.
            if let Some(inner) = part(even, &[1, 2]) {
                assert_eq!((inner.global_ranks(), inner.name()), (&[2, 4][..], "1.1"));
                assert_eq!(sum(&inner, rank), 6);
                inner.destroy().unwrap();
            }
        }
        for own in parts.into_iter().flatten() {
            own.destroy().unwrap();
        }
        // The whole goes on without its parts.
        assert_eq!(sum(&whole, 1), 6);
    });
}

#[test]
fn groups_that_cannot_be_are_refused_and_do_not_count() {
    ranks(2, &options(TIME), |whole| {
        for wrong in [&[][..], &[0, 0], &[2], &[0, 1, 1]] {
            assert!(matches!(whole.new_group(wrong, &GroupOptions::default()), Err(Error::Argument(_))), "{wrong:?}");
        }
        assert_eq!(part(&whole, &[0, 1]).unwrap().name(), "1");
    });
}

#[test]
fn ranks_that_make_other_groups_are_named() {
    let texts = ranks(2, &options(TIME), |whole| {
        let others: &[usize] = if whole.rank() == 0 { &[0] } else { &[0, 1] };
        let made = whole.new_group(others, &GroupOptions::default());
        whole.barrier().unwrap().wait().unwrap();
        made.err().map(|error| error.to_string())
    });
    let said: Vec<String> = texts.into_iter().flatten().collect();
    assert!(said.len() == 1 && said[0].contains("makes group 1 of rank 0"), "{said:?}");
    assert!(said[0].contains("another rank makes it of rank"), "{said:?}");
}

#[test]
fn a_part_that_is_given_up_leaves_the_whole_alone() {
    ranks(3, &options(TIME), |whole| {
        let short = GroupOptions { timeout: Some(Duration::from_millis(200)), ..GroupOptions::default() };
        if let Ok(part) = whole.new_group(&[0, 2], &short) {
            if whole.rank() == 2 {
                let Err(Error::Timeout(report)) = part.barrier().unwrap().wait() else {
                    panic!("rank 0 does not call")
                };
                assert_eq!(report.missing(), [0]);
            } else {
                thread::sleep(Duration::from_millis(500));
            }
        }
        assert_eq!(sum(&whole, 1), 3);
    });
}

#[test]
fn the_last_to_leave_removes_what_a_group_has_left() {
    let counts = ranks(3, &options(TIME), |whole| {
        whole.barrier().unwrap().wait().unwrap();
        let before = whole.store().num_keys().unwrap();
        for number in 0..5 {
            if let Some(part) = part(&whole, &[0, 2]) {
                let (input, output) =
                    (Tensor::from_slice(&[number, 2], &[2]).unwrap(), Tensor::from_slice(&[0, 0], &[2]));
                part.all_to_all_single(output.as_ref().unwrap(), &input, None, None).unwrap().wait().unwrap();
                part.destroy().unwrap();
            }
        }
        whole.barrier().unwrap().wait().unwrap();
        whole.barrier().unwrap().wait().unwrap();
        (before, whole.store().num_keys().unwrap())
    });
    // A barrier's own keys come and go.
    assert!(counts.iter().all(|(before, after)| *after <= before + 6), "{counts:?}");
}
