//! Elementwise work on the host, shared among threads where the feature `rayon` says so: every element is what it is alone.

use aten_cuda::{DType, Result, Tensor};

const COUNT: i64 = 300_000;

#[test]
fn every_element_is_computed_once_and_in_its_place() -> Result<()> {
    let ramp = Tensor::arange(0, COUNT, 1, None, "cpu")?;
    let expected: Vec<i64> = (0..COUNT).map(|at| at * 3 + 1).collect();
    assert_eq!(ramp.mul(3)?.add(1)?.to_vec::<i64>()?, expected);
    // In place, and through a view whose elements lie apart.
    let wide = Tensor::zeros(&[COUNT, 2], DType::I64, "cpu")?;
    let column = wide.select(1, 1)?;
    column.copy_(&ramp)?;
    column.mul_(3)?;
    column.add_(1)?;
    assert_eq!(column.to_vec::<i64>()?, expected);
    assert_eq!(wide.select(1, 0)?.to_vec::<i64>()?, vec![0; expected.len()]);
    // An operand that every row reads.
    let row = Tensor::arange(0, 500, 1, None, "cpu")?;
    let sums = ramp.view(&[600, 500])?.add(&row)?;
    assert_eq!(sums.to_vec::<i64>()?, (0..COUNT).map(|at| at + at % 500).collect::<Vec<i64>>());
    Ok(())
}

#[test]
fn threads_that_work_on_one_tensor_see_whole_elements() -> Result<()> {
    let one = Tensor::zeros(&[COUNT], DType::F64, "cpu")?;
    std::thread::scope(|scope| {
        let fill = |value: i64| one.fill_(value).map(drop);
        let workers: Vec<_> = (1..=3).map(|value| scope.spawn(move || fill(value))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    assert!(one.to_vec::<f64>()?.iter().all(|value| [1.0, 2.0, 3.0].contains(value)));
    Ok(())
}

#[test]
fn readers_see_whole_elements_of_an_operation_that_is_under_way() -> Result<()> {
    // Two values whose bytes all differ: an element that were half written would be a third one.
    let values = [f64::from_bits(0x1111_1111_1111_1111), f64::from_bits(0x2222_2222_2222_2222)];
    let shared = Tensor::full(&[COUNT / 10], values[0], DType::F64, "cpu")?;
    let view = shared.slice(0, Some(1), None, 3)?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..40).try_for_each(|turn| shared.fill_(values[turn % 2]).map(drop)));
        let mut read = Ok(());
        while !writer.is_finished() && read.is_ok() {
            read = view.to_vec::<f64>().and(shared.to_vec::<f64>()).map(|found| {
                assert!(found.iter().all(|value| values.map(f64::to_bits).contains(&value.to_bits())));
            });
        }
        writer.join().unwrap_or(Ok(())).and(read)
    })
}
