//! Collectives of rows of bytes.

use std::time::Duration;

use cuda_dist::Error;

use super::{options, ranks};

#[test]
fn objects_of_any_length_come_whole() {
    ranks(3, &options(Duration::from_secs(60)), |group| {
        let own = |rank: usize| [7, 0, 255][..=rank].repeat(rank * 1000);
        let all: Vec<Vec<u8>> = (0..3).map(own).collect();
        let rank = group.rank();
        assert_eq!(group.all_gather_object(&own(rank)).unwrap(), all);
        assert_eq!(group.gather_object(&own(rank), 2).unwrap(), (rank == 2).then(|| all.clone()));
        assert_eq!(group.scatter_object_list((rank == 1).then_some(&all), 1).unwrap(), all[rank]);
        let mut objects = if rank == 2 { all.clone() } else { vec![b"old".to_vec(); 3] };
        group.broadcast_object_list(&mut objects, 2).unwrap();
        assert_eq!(objects, all);
        group.broadcast_object_list(&mut [], 0).unwrap();
    });
}

#[test]
fn lists_of_objects_that_do_not_fit_are_refused() {
    ranks(1, &options(Duration::from_secs(60)), |group| {
        assert!(matches!(group.scatter_object_list(None, 0), Err(Error::Argument(_))));
        assert!(matches!(group.scatter_object_list(Some(&[]), 0), Err(Error::Argument(_))));
        assert!(matches!(group.gather_object(b"", 1), Err(Error::Argument(_))));
    });
}

#[test]
fn ranks_with_other_numbers_of_objects_are_named() {
    let texts = ranks(2, &options(Duration::from_secs(60)), |group| {
        group.broadcast_object_list(&mut vec![vec![]; 1 + group.rank()], 0).unwrap_err().to_string()
    });
    assert!(texts.iter().all(|text| text.contains("the sizes are [")), "{texts:?}");
}
