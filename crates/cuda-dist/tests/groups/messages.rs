//! Messages between ranks: order, tags, and those that do not come.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{DType, Tensor};
use cuda_dist::{Error, HashStore, InitOptions, Operation, P2POp, ProcessGroup, ReduceOp, Settings, Store as _};

use super::{machine, options, ranks};

const TIME: Duration = Duration::from_secs(60);

fn row(values: &[i64]) -> Tensor {
    Tensor::from_slice(values, &[values.len() as i64]).unwrap()
}

fn read(tensor: &Tensor) -> i64 {
    tensor.to_vec::<i64>().unwrap()[0]
}

#[test]
fn messages_of_a_tag_come_in_their_order_and_tags_do_not_mix() {
    ranks(2, &options(TIME), |group| {
        if group.rank() == 1 {
            for (value, tag) in [(1, 5), (2, 9), (3, 5)] {
                group.send(&row(&[value]), 0, tag).unwrap();
            }
            return;
        }
        // Begun in another order than they are sent in.
        let tensors = [row(&[0]), row(&[0]), row(&[0])];
        let begun: Vec<_> = tensors.iter().zip([9, 5, 5]).map(|(to, tag)| group.irecv(to, Some(1), tag)).collect();
        for work in &begun {
            work.as_ref().unwrap().wait().unwrap();
        }
        assert_eq!(tensors.each_ref().map(read), [2, 1, 3]);
        assert_eq!(begun[0].as_ref().unwrap().source_rank(), Some(1));
    });
}

#[test]
fn a_message_from_anyone_says_whose_it_is() {
    ranks(4, &options(TIME), |group| {
        if group.rank() > 0 {
            group.send(&row(&[group.rank() as i64]), 0, 0).unwrap();
            return;
        }
        let mut from: Vec<usize> = (1..4)
            .map(|_| {
                let tensor = row(&[0]);
                let from = group.recv(&tensor, None, 0).unwrap();
                assert_eq!(read(&tensor), from as i64);
                from
            })
            .collect();
        from.sort_unstable();
        assert_eq!(from, [1, 2, 3]);
    });
}

#[test]
fn collectives_go_on_beside_messages() {
    ranks(2, &options(TIME), |group| {
        let (output, other) = (row(&[0]), 1 - group.rank());
        let work = group.irecv(&output, Some(other), 0).unwrap();
        let sum = row(&[1]);
        group.all_reduce(&sum, ReduceOp::Sum).unwrap().wait().unwrap();
        assert!(!work.is_completed() && read(&sum) == 2);
        group.barrier().unwrap().wait().unwrap();
        group.send(&row(&[7]), other, 0).unwrap();
        work.wait().unwrap();
        assert_eq!((read(&output), work.call().sequence, work.call().operation), (7, 1, Operation::Recv));
    });
}

#[test]
fn what_is_sent_without_end_waits_for_its_reader() {
    const COUNT: usize = 5;
    let count = 64 << 10;
    let store = HashStore::new();
    let group = |rank| ProcessGroup::with_store(Arc::new(store.clone()), rank, 2, &options(TIME)).unwrap();
    let (sender, receiver) = (group(0), group(1));
    let large = Tensor::zeros(&[count], DType::F64, "cpu").unwrap();
    let works: Vec<_> = (0..COUNT).map(|_| sender.isend(&large, 1, 0).unwrap()).collect();
    works[1].wait().unwrap();
    // Two lie in the store, the third would be too much.
    thread::sleep(Duration::from_millis(50));
    assert!(!works[2].is_completed());
    for _ in 0..COUNT {
        receiver.recv(&large, Some(0), 0).unwrap();
    }
    works.iter().for_each(|work| work.wait().unwrap());
    // Nothing of a message stays.
    assert!(!store.check(&["cuda_dist/message/0/1/0/4"]).unwrap());
    assert!(!store.check(&["cuda_dist/message/0/1/0/4/values"]).unwrap());
}

#[test]
fn a_message_of_another_kind_is_named() {
    let texts = ranks(2, &options(TIME), |group| {
        if group.rank() == 1 {
            group.send(&row(&[1, 2, 3]), 0, 4).unwrap();
            return String::new();
        }
        let error = group.recv(&row(&[0, 0]), Some(1), 4).unwrap_err();
        assert!(matches!(error, Error::Mismatch { rank: 0, other_rank: 1, .. }), "{error}");
        error.to_string()
    });
    assert_eq!(
        texts[0],
        "rank 0 called recv #1 of int64 [2] (from rank 1, tag 4), but rank 1 called send #1 of int64 [3] (to rank 0, \
         tag 4): the sizes are [3] and [2]"
    );
}

#[test]
fn what_is_no_message_and_no_length_is_refused() {
    let store = HashStore::new();
    let group = ProcessGroup::with_store(Arc::new(store.clone()), 0, 2, &options(TIME)).unwrap();
    for (garbage, tag) in [(&b"garbage"[..], 0), (&[0xff, 0xfe], 1), (b"1 barrier -  - - - 0", 2)] {
        let key = format!("cuda_dist/message/1/0/{tag}/0");
        store.set(&format!("{key}/values"), &[0; 8]).unwrap();
        store.set(&key, garbage).unwrap();
        let error = group_of(&store).recv(&row(&[0]), Some(1), tag).unwrap_err();
        assert!(matches!(&error, Error::Value { key: named, .. } if *named == key), "{error}");
    }
    // Rank 1 says that its object has a length that cannot be.
    for (sequence, length) in [(1, -1_i64), (2, i64::MAX)] {
        let call = format!("{sequence} all_gather_into_tensor int64 1 - - - 0");
        store.set(&format!("cuda_dist/values/{sequence}/1"), &length.to_le_bytes()).unwrap();
        store.set(&format!("cuda_dist/call/{sequence}/1"), call.as_bytes()).unwrap();
        let error = group.all_gather_object(b"object").unwrap_err().to_string();
        assert!(error.contains(&format!("is {length}, and an object has from 0 to")), "{error}");
    }
}

/// A group of its own for what gives a group up.
fn group_of(store: &HashStore) -> ProcessGroup {
    let settings = options(TIME).settings.map(|settings| Settings { propagate_error: false, ..settings });
    let options = InitOptions { settings, ..options(TIME) };
    ProcessGroup::with_store(Arc::new(store.clone()), 0, 2, &options).unwrap()
}

#[test]
fn a_message_that_does_not_come_is_named() {
    let begin = Instant::now();
    let texts = ranks(2, &options(Duration::from_millis(400)), |group| {
        group.barrier().unwrap().wait().unwrap();
        if group.rank() == 1 {
            thread::sleep(Duration::from_millis(900));
            return String::new();
        }
        let Err(Error::Timeout(report)) = group.recv(&row(&[0]), Some(1), 2).map(drop) else {
            panic!("nobody sends it")
        };
        assert_eq!(report.missing(), [1]);
        assert!(group.send(&row(&[0]), 1, 0).is_err(), "the group was given up");
        report.to_string()
    });
    let expected = "rank 0: recv #1 of int64 [1] (from rank 1, tag 2) did not end within";
    assert!(texts[0].starts_with(expected), "{}", texts[0]);
    assert!(texts[0].contains("it was never sent by rank 1\n  rank 1 last called barrier #1"), "{}", texts[0]);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn ranks_that_wait_for_messages_of_each_other_say_so() {
    let texts = ranks(2, &options(Duration::from_millis(400)), |group| {
        group.recv(&row(&[0]), Some(1 - group.rank()), 0).unwrap_err().to_string()
    });
    assert!(texts.iter().any(|text| text.contains("with recv #1 of int64 [1] (from rank")), "{texts:?}");
}

#[test]
fn messages_that_cannot_be_are_refused_at_once() {
    machine();
    let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 2, &options(TIME)).unwrap();
    let tensor = row(&[1]);
    assert!(matches!(group.send(&tensor, 2, 0), Err(Error::Argument(_))));
    let error = group.send(&tensor, 0, 0).unwrap_err().to_string();
    assert_eq!(error, "rank 0 cannot exchange a message with itself");
    assert!(matches!(group.recv(&tensor, Some(0), 0), Err(Error::Argument(_))));
    assert!(matches!(group.send(&tensor.cuda(None).unwrap(), 1, 0), Err(Error::Unsupported { .. })));
    let large = Tensor::zeros(&[(1 << 20) + 1], DType::F64, "cpu").unwrap();
    assert!(matches!(group.irecv(&large, None, 0), Err(Error::Unsupported { .. })));
    // One that is wrong keeps the others from beginning.
    let mixed = [P2POp::isend(&tensor, 1), P2POp::irecv(&tensor, 9)];
    assert!(matches!(group.batch_isend_irecv(&mixed), Err(Error::Argument(_))));
    assert!(group.batch_isend_irecv(&[]).unwrap().is_empty());
    assert_eq!(group.isend(&tensor, 1, 0).unwrap().call().sequence, 1);
}
