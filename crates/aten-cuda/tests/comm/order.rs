//! One device is late, and what is queued before or after a collective on another must not overtake it.

use super::*;

/// Elements from which on copies go on at once.
const MANY: i64 = 140_000;
const FEW: i64 = 500;

/// Puts off what is queued on the current stream of a device later.
fn sleep(device: i32) -> Result<()> {
    Ok(Runtime::current().streams().current(device)?.sleep(200_000_000)?)
}

fn filled(count: i64, value: i32, device: i32) -> Result<Tensor> {
    Tensor::full(&[count], value, DType::F64, on(device).as_str())
}

#[track_caller]
fn holds(tensor: &Tensor, value: f64, case: &str) {
    let values = tensor.to_vec::<f64>().expect("the elements can be read");
    let wrong = values.iter().filter(|&&found| found != value).count();
    assert_eq!(wrong, 0, "{case}: of {} elements, which are {:?} instead of {value}", values.len(), values.last());
}

/// What a collective makes of tensors of the devices 0, 1, 2 that are full of fives.
type Collective = fn(&[&Tensor]) -> Result<Vec<Tensor>>;

const COLLECTIVES: [(&str, Collective, f64); 5] = [
    ("broadcast", |inputs| Ok(comm::broadcast(inputs[0], &[0, 1, 2])?.split_off(1)), 5.0),
    ("reduce_add", |inputs| Ok(vec![comm::reduce_add(inputs, 1)?]), 15.0),
    ("gather", |inputs| Ok(vec![comm::gather(inputs, 0, 2)?]), 5.0),
    ("scatter", |inputs| comm::scatter(inputs[1], &[0, 2], None, 0, &[]), 5.0),
    (
        "coalesced",
        |inputs| {
            let copies = comm::broadcast_coalesced(&[inputs[0], inputs[0]], &[0, 1, 2], BUFFER_SIZE)?;
            let lists: Vec<Vec<&Tensor>> = copies.iter().map(|list| list.iter().collect()).collect();
            comm::reduce_add_coalesced(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>(), 2, BUFFER_SIZE)
        },
        15.0,
    ),
];

#[test]
fn what_was_queued_before_comes_first_and_what_comes_later_waits() -> Result<()> {
    for peers in [true, false] {
        for route in [Route::Direct, Route::Tree, Route::Chain] {
            for late in 0..3 {
                for (name, collective, value) in COLLECTIVES {
                    let goes_so = name == "broadcast" || (name == "reduce_add" && route == Route::Chain);
                    if !goes_so && route != Route::Direct {
                        continue;
                    }
                    let rig = SimulatedRuntime::new(Config::default().devices(3).peer_access(peers).seed(1));
                    let inputs = (0..3)
                        .map(|device| filled(if name == "gather" { MANY } else { FEW }, 1, device))
                        .collect::<Result<Vec<Tensor>>>()?;
                    inputs.iter().try_for_each(|input| input.add_(1).map(drop))?;
                    sleep(late)?;
                    inputs.iter().try_for_each(|input| input.fill_(5).map(drop))?;
                    comm::set_route(route);
                    let results = collective(&inputs.iter().collect::<Vec<_>>());
                    comm::set_route(Route::Auto);
                    let results = results?;
                    inputs.iter().try_for_each(|input| input.fill_(7).map(drop))?;
                    let read = results.iter().map(Tensor::copy).collect::<Result<Vec<Tensor>>>()?;
                    // What others still read from a result, a later write to it does not reach.
                    results.iter().try_for_each(|result| result.fill_(9).map(drop))?;
                    let case = format!("{name}, {route:?}, device {late} late, peers {peers}");
                    read.iter().for_each(|read| holds(read, value, &case));
                    results.iter().for_each(|result| holds(result, 9.0, &case));
                    assert_no_misuse(&rig);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_result_that_is_written_at_once_is_still_handed_on_as_it_was() -> Result<()> {
    for route in [Route::Tree, Route::Chain] {
        let _rig = machine(4);
        let source = filled(FEW, 5, 0)?;
        // The last devices are late, and the middle ones already write.
        [2, 3].into_iter().try_for_each(sleep)?;
        comm::set_route(route);
        let copies = comm::broadcast(&source, &[1, 2, 3]);
        comm::set_route(Route::Auto);
        let copies = copies?;
        copies[0].fill_(8)?;
        holds(&copies[2], 5.0, "broadcast");
        holds(&copies[1], 5.0, "broadcast");
        holds(&copies[0], 8.0, "broadcast");
    }
    Ok(())
}

#[test]
fn outputs_are_written_after_what_was_queued_on_them() -> Result<()> {
    for peers in [true, false] {
        let _rig = SimulatedRuntime::new(Config::default().devices(3).peer_access(peers).seed(1));
        let inputs = (0..3).map(|device| filled(MANY, 5, device)).collect::<Result<Vec<Tensor>>>()?;
        let out = Tensor::zeros(&[3 * MANY], DType::F64, "cuda:0")?;
        sleep(0)?;
        out.fill_(1)?;
        comm::gather_out(&inputs.iter().collect::<Vec<_>>(), &out, 0)?;
        holds(&out, 5.0, "gather_out");
        // The sources are late, and the result is read at once.
        [1, 2].into_iter().try_for_each(sleep)?;
        inputs.iter().try_for_each(|input| input.fill_(6).map(drop))?;
        comm::gather_out(&inputs.iter().collect::<Vec<_>>(), &out, 0)?;
        holds(&out, 6.0, "gather_out");
        let outs = [filled(MANY, 0, 1)?, filled(MANY, 0, 2)?];
        [1, 2].into_iter().try_for_each(sleep)?;
        outs.iter().try_for_each(|out| out.fill_(1).map(drop))?;
        comm::broadcast_out(&inputs[0], &[&outs[0], &outs[1]])?;
        outs.iter().for_each(|out| holds(out, 6.0, "broadcast_out"));
    }
    Ok(())
}
