//! Many clients of one server, in several processes: a thousand ranks under a limit of open files, silent
//! unauthenticated clients, and requests larger than the server's buffers. No outcome depends on timing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cuda_dist::{Error, Limits, Store, TcpServerOptions, TcpStore, TcpStoreOptions, TcpStoreServer};
use rustix::process::{Resource, Rlimit, setrlimit};
use testkit::process::{Other, role, say, told};

const TIME: Duration = Duration::from_secs(300);
const TOKEN: &str = "secret";

/// Number of connections of a rank in one group.
const OF_RANK: usize = 3;

/// Body of each child process, selected by its role.
#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words.as_slice() {
        ["server", open_files] => serve(open_files.parse().unwrap()),
        ["ranks", address, first, count, all] => {
            ranks(address, first.parse().unwrap(), count.parse().unwrap(), all.parse().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

/// Serves with a limit of open files, as under `ulimit -n`. Reports its address, and on request the number of open
/// descriptors and threads.
fn serve(open_files: u64) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(open_files), maximum: Some(open_files) }).unwrap();
    // No unauthenticated client is disconnected by a deadline.
    let limits = Limits { seconds: 3600, ..Limits::default() };
    let options = TcpServerOptions { token: Some(TOKEN.to_owned()), limits, ..TcpServerOptions::default() };
    let server = TcpStoreServer::with(&options).unwrap();
    say(&server.address().to_string());
    while !told().is_empty() {
        let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        say(&format!("{} {}", count("/proc/self/fd"), count("/proc/self/task")));
    }
}

/// Runs a part of the ranks: each connects, meets the others of the group, and stays until the test has looked.
fn ranks(address: &str, first: usize, count: usize, all: i64) {
    let options = TcpStoreOptions { timeout: TIME, token: Some(TOKEN.to_owned()) };
    let connect = || TcpStore::with(address, options.clone()).unwrap();
    let ranks: Vec<[TcpStore; OF_RANK]> = (0..count).map(|_| [connect(), connect(), connect()]).collect();
    for (rank, [values, counts, _]) in (first..).zip(&ranks) {
        values.set(&format!("rank {rank}"), rank.to_string().as_bytes()).unwrap();
        values.check(&[]).unwrap();
        if counts.add("here", 1).unwrap() == all {
            counts.set("all", b"here").unwrap();
        }
    }
    for (rank, [values, _, waits]) in (first..).zip(&ranks) {
        waits.wait(&["all"], TIME).unwrap();
        let next = (rank + 1) % usize::try_from(all).unwrap();
        assert_eq!(values.get(&format!("rank {next}"), TIME).unwrap(), next.to_string().as_bytes());
    }
    say("met");
    told();
}

fn start(role: &str) -> Other {
    Other::start("the_other_process", role, &[])
}

/// Runs ranks in several processes; returns the number of descriptors and threads of the server while all are
/// connected.
fn meet(server: &mut Other, address: &str, processes: usize, each: usize) -> (usize, usize) {
    let all = processes * each;
    let others = (0..processes).map(|part| start(&format!("ranks {address} {} {each} {all}", part * each)));
    let mut others: Vec<Other> = others.collect();
    others.iter_mut().for_each(|other| assert_eq!(other.hear(), "met"));
    server.tell(&[1]);
    let answer = server.hear();
    let (descriptors, threads) = answer.split_once(' ').unwrap();
    others.into_iter().for_each(Other::end);
    (descriptors.parse().unwrap(), threads.parse().unwrap())
}

#[test]
fn a_thousand_ranks_are_served_with_4096_open_files() {
    let mut server = start("server 4096");
    let address = server.hear();
    let (descriptors, threads) = meet(&mut server, &address, 8, 125);
    server.end();
    let connections = 1000 * OF_RANK;
    assert!((connections..connections + 40).contains(&descriptors), "{descriptors} for {connections} connections");
    assert!(threads <= 4, "{threads} threads");
}

#[test]
fn silent_sockets_stop_no_rank() {
    let mut server = start("server 1024");
    let address = server.hear();
    let place: SocketAddr = address.parse().unwrap();
    let silent: Vec<TcpStream> = (0..510).map(|_| TcpStream::connect(place).unwrap()).collect();
    // 170 ranks have 510 connections.
    let (descriptors, _) = meet(&mut server, &address, 2, 85);
    let open = 170 * OF_RANK + Limits::default().strangers;
    assert!(descriptors <= open + 40, "{descriptors}");
    drop(silent);
    server.end();
}

#[test]
fn a_rank_more_than_there_are_places_is_refused_and_the_others_stay() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = TcpStoreServer::with(&TcpServerOptions { limits, ..TcpServerOptions::default() }).unwrap();
    let connect = || TcpStore::connect(&server.address().to_string(), Duration::from_secs(5));
    let (one, two) = (connect().unwrap(), connect().unwrap());
    assert!(matches!(connect(), Err(Error::Protocol { .. })));
    one.set("key", b"value").unwrap();
    assert_eq!(two.get("key", TIME).unwrap(), b"value");
    drop(one);
    // The place becomes free once the server has seen the connection close.
    let next = loop {
        match connect() {
            Ok(next) => break next,
            Err(error) => assert!(matches!(error, Error::Protocol { .. }), "{error}"),
        }
    };
    assert_eq!(next.get("key", TIME).unwrap(), b"value");
}

/// Twenty requests of 1 MiB are half sent while the server buffers at most 4 MiB of incomplete requests: each
/// completes.
#[test]
fn requests_above_the_bytes_that_are_held_take_turns() {
    let limits = Limits { request_bytes: 4 << 20, ..Limits::default() };
    let server = TcpStoreServer::with(&TcpServerOptions { limits, ..TcpServerOptions::default() }).unwrap();
    let request = |number: u8| {
        let key = [b"/", [b'a' + number].as_slice()].concat();
        let mut bytes = vec![0];
        bytes.extend(0x3C85_F7CE_u32.to_le_bytes());
        bytes.push(1);
        bytes.extend((key.len() as u64).to_le_bytes());
        bytes.extend(key);
        bytes.extend((1_u64 << 20).to_le_bytes());
        bytes.resize(bytes.len() + (1 << 20), number);
        bytes
    };
    let halves = std::sync::Barrier::new(20);
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (halves, address) = (&halves, server.address());
            scope.spawn(move || {
                let (mut stream, request) = (TcpStream::connect(address).unwrap(), request(number));
                let (first, second) = request.split_at(200_000);
                stream.write_all(first).unwrap();
                halves.wait();
                stream.write_all(second).unwrap();
                // The reply to a ping shows that the value is stored.
                stream.write_all(&[13, number, 0, 0, 0]).unwrap();
                let mut answer = [0; 4];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [number, 0, 0, 0]);
            });
        }
    });
    let store = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    for number in 0..20_u8 {
        let key = char::from(b'a' + number).to_string();
        assert_eq!(store.get(&key, TIME).unwrap(), vec![number; 1 << 20]);
    }
}

/// A client that requests much and reads nothing is not served further, and receives all replies once it reads.
#[test]
fn answers_that_are_not_taken_hold_up_their_client_alone() {
    let server = TcpStoreServer::with(&TcpServerOptions::default()).unwrap();
    let store = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    let value = vec![7; 1 << 20];
    store.set("k", &value).unwrap();
    store.check(&["k"]).unwrap();
    let mut slow = TcpStream::connect(server.address()).unwrap();
    let ask: Vec<u8> = [&[3][..], &2_u64.to_le_bytes(), b"/k"].concat();
    slow.write_all(&[&[0][..], &0x3C85_F7CE_u32.to_le_bytes(), &ask.repeat(30)].concat()).unwrap();
    // Other clients are served in the meantime.
    assert_eq!(store.add("n", 1).unwrap(), 1);
    let mut answer = vec![0; 30 * (8 + value.len())];
    slow.read_exact(&mut answer).unwrap();
    for answer in answer.chunks(8 + value.len()) {
        assert_eq!(answer[..8], (value.len() as u64).to_le_bytes());
        assert!(answer[8..] == value);
    }
}
