//! Ranks in several processes of the host: this program again, which is told its rank by the environment.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};

use super::*;

/// How a rank behaves.
const KEEPS: &str = "keeps to it";
const DIES: &str = "dies";
const DIFFERS: &str = "calls something else";

fn new_id(rig: &Devices) -> ncclUniqueId {
    let mut id = ncclUniqueId { internal: [0; 128] };
    nccl!(rig, ncclGetUniqueId(&mut id)).expect("there is a socket");
    id
}

/// A process that is a rank of so many.
fn process(id: &ncclUniqueId, ranks: usize, rank: usize, behaviour: &str) -> Child {
    let text = id.internal.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{:02x}", byte.cast_unsigned());
        text
    });
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", "processes::as_a_rank", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    command.env("RANK", rank.to_string()).env("RANKS", ranks.to_string()).env("ID", text).env("BEHAVIOUR", behaviour);
    command.spawn().expect("this program can be run")
}

/// What a process has printed, once it has ended well.
fn printed(process: Child) -> String {
    let output = process.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Joins as a rank, from device 0 of a machine of its own.
fn joined(id: ncclUniqueId, ranks: i32, rank: i32, time: Duration) -> Result<Devices, String> {
    let mut rig = Devices::without_comms(1, Config::default().nccl_timeout(time));
    let mut comm = ptr::null_mut();
    let answer = nccl!(rig, ncclCommInitRank(&mut comm, ranks, id, rank));
    if answer.is_err() {
        return Err(rig.last_error());
    }
    rig.comms.push(comm);
    Ok(rig)
}

/// Sums over all ranks, and messages around them; what the rank has in the end.
fn work(rig: &Devices, rank: usize, ranks: usize) -> Vec<f32> {
    let buffer = rig.floats(0, &[f32::from(u8::try_from(rank).expect("few")) + 1.0, 0.0]);
    let (comm, stream) = (rig.comms[0], rig.streams[0].cast());
    for _ in 0..3 {
        rig.all_reduce(0, buffer, 1).expect("it is queued");
    }
    let peer = |step: usize| i32::try_from((rank + step) % ranks).expect("few");
    nccl!(rig, ncclGroupStart()).expect("it begins");
    let mine = rig.floats(0, &[f32::from(u8::try_from(rank).expect("few"))]);
    nccl!(rig, ncclSend(at(mine), 1, F32, peer(1), comm, stream)).expect("it is taken");
    nccl!(rig, ncclRecv(at(buffer + 4), 1, F32, peer(ranks - 1), comm, stream)).expect("it is taken");
    nccl!(rig, ncclGroupEnd()).expect("it is queued");
    rig.wait();
    rig.read(0, buffer, 2)
}

#[test]
#[ignore = "the other tests run it, in processes of its own"]
#[expect(clippy::print_stdout, reason = "it answers the test that runs it")]
fn as_a_rank() {
    let told = |name: &str| std::env::var(name).expect("a test has set it");
    let number = |name: &str| told(name).parse::<i32>().expect("a number");
    let byte = |index: usize| u8::from_str_radix(&told("ID")[2 * index..2 * index + 2], 16).expect("digits");
    let id = ncclUniqueId { internal: std::array::from_fn(|index| byte(index).cast_signed()) };
    let (rank, ranks) = (number("RANK"), number("RANKS"));
    let rig = joined(id, ranks, rank, Duration::from_secs(60)).expect("all come");
    let count = |number: i32| usize::try_from(number).expect("not negative");
    match told("BEHAVIOUR").as_str() {
        DIES => std::process::exit(0),
        DIFFERS => {
            let buffer = rig.floats(0, &[1.0]);
            let (comm, stream) = (rig.comms[0], rig.streams[0].cast());
            nccl!(rig, ncclBroadcast(at(buffer), at(buffer), 1, F32, 0, comm, stream)).expect("it is queued");
            rig.wait();
            println!("found {:?}: {}", rig.async_error(0), rig.last_error());
        }
        _ => println!("found {:?}", work(&rig, count(rank), count(ranks))),
    }
    assert_eq!(rig.close().library_handles, 0);
}

#[test]
fn processes_meet_by_an_identity_of_another_process() {
    let rig = Devices::without_comms(1, Config::default());
    let id = new_id(&rig);
    let all: Vec<Child> = (0..3).map(|rank| process(&id, 3, rank, KEEPS)).collect();
    let texts: Vec<String> = all.into_iter().map(printed).collect();
    // 1 + 2 + 3, three times.
    for (text, from) in texts.iter().zip([2, 0, 1]) {
        assert!(text.contains(&format!("found [54.0, {from}.0]")), "{text}");
    }
}

#[test]
fn a_rank_of_the_process_that_made_the_identity_works_with_others() {
    let rig = Devices::without_comms(1, Config::default());
    let id = new_id(&rig);
    let others: Vec<Child> = (1..3).map(|rank| process(&id, 3, rank, KEEPS)).collect();
    let mut rig = rig;
    let mut comm = ptr::null_mut();
    rig.on(0);
    nccl!(rig, ncclCommInitRank(&mut comm, 3, id, 0)).expect("all come");
    rig.comms.push(comm);
    assert_eq!(work(&rig, 0, 3), [54.0, 2.0]);
    for (other, from) in others.into_iter().zip([0, 1]) {
        assert!(printed(other).contains(&format!("found [54.0, {from}.0]")));
    }
    assert_eq!(rig.close().library_handles, 0);
}

#[test]
fn a_process_that_dies_is_told_of_to_the_others() {
    let rig = Devices::without_comms(1, Config::default());
    let id = new_id(&rig);
    let other = process(&id, 2, 1, DIES);
    let rig = joined(id, 2, 0, Duration::from_secs(60)).expect("both come");
    let buffer = rig.floats(0, &[1.0]);
    rig.all_reduce(0, buffer, 1).expect("it is queued, or the other has gone already");
    rig.wait();
    assert_eq!(rig.async_error(0), ncclResult_t::ncclRemoteError);
    let text = "rank 1 has gone with its process while rank 0 waits for it in AllReduce(1 float32, sum)";
    assert_eq!((rig.last_error().as_str(), rig.read(0, buffer, 1)), (text, vec![1.0]));
    printed(other);
}

#[test]
fn processes_that_call_different_things_are_named() {
    let rig = Devices::without_comms(1, Config::default());
    let id = new_id(&rig);
    let other = process(&id, 2, 1, DIFFERS);
    let rig = joined(id, 2, 0, Duration::from_secs(60)).expect("both come");
    let buffer = rig.floats(0, &[1.0]);
    rig.all_reduce(0, buffer, 1).expect("it is queued");
    rig.wait();
    assert_eq!(rig.async_error(0), ncclResult_t::ncclInvalidUsage);
    for text in [rig.last_error(), printed(other)] {
        assert!(text.contains("rank 0 called AllReduce(1 float32, sum)"), "{text}");
        assert!(text.contains("rank 1 called Broadcast(1 float32, root 0)"), "{text}");
    }
}

#[test]
fn strangers_and_ranks_that_do_not_fit_are_turned_away() {
    let maker = Devices::without_comms(1, Config::default());
    let id = new_id(&maker);
    let bytes = id.internal.map(i8::cast_unsigned);
    let name =
        std::str::from_utf8(&bytes).expect("a text").split(' ').next().expect("it begins with a name").to_owned();
    let address = SocketAddr::from_abstract_name(&name).expect("a name of a socket");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 600], b""] {
        let mut stream = UnixStream::connect_addr(&address).expect("it listens");
        stream.write_all(garbage).expect("it reads");
    }
    let brief = Duration::from_millis(40);
    let refused = |ranks, rank| joined(id, ranks, rank, brief).map(drop).expect_err("it is refused");
    assert_eq!(refused(2, 0), "after 40 ms not all of 2 ranks have come");
    let mut gone = id;
    gone.internal[20] = b'0'.cast_signed();
    let nobody = joined(gone, 2, 0, brief).map(drop).expect_err("nobody listens there");
    assert!(nobody.starts_with("cannot reach the process that made the identity"), "{nobody}");
    // A rank that is there already, and one that counts otherwise.
    let held = std::thread::spawn(move || joined(id, 2, 0, Duration::from_millis(600)).map(drop));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(refused(2, 0), "there are two ranks 0");
    assert_eq!(refused(3, 1), "rank 1 says that there are 3 ranks, others say 2");
    held.join().expect("it ends").expect_err("nobody has come");
}
