//! The protocol of torch's `TCPStore`: both ends against exchanges that were recorded between two of PyTorch 2.11. In
//! `tcp_store.txt` its server with libuv and the older one answered the same bytes; `tcp_queue.txt` is about queues, which
//! only the one with libuv has. `>` is what the client sent, `<` what it got, `#` ends a call.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuda_dist::{
    Error, Limits, PrefixStore, Store, TcpServerOptions, TcpStore, TcpStoreOptions, TcpStoreServer, serve_bytes,
};

const TIME: Duration = Duration::from_secs(20);

/// A call of the recording: its name, and what went over the wire in turns.
struct Recorded {
    name: String,
    turns: Vec<(bool, Vec<u8>)>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|place| u8::from_str_radix(&text[place..place + 2], 16).unwrap()).collect()
}

const STORE: &str = include_str!("data/tcp_store.txt");
const QUEUE: &str = include_str!("data/tcp_queue.txt");

fn recording(text: &str) -> Vec<Recorded> {
    let (mut calls, mut turns) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        match kind {
            "#" => calls.push(Recorded { name: rest.to_owned(), turns: std::mem::take(&mut turns) }),
            _ => turns.push((kind == ">", unhex(rest))),
        }
    }
    assert!(calls.len() > 15 && turns.is_empty());
    calls
}

#[test]
fn the_server_answers_as_torchs() {
    for (text, requests) in [(STORE, 24), (QUEUE, 29)] {
        let calls = recording(text);
        let side = |is_sent: bool| -> Vec<u8> {
            let turns = calls.iter().flat_map(|call| &call.turns).filter(|(sent, _)| *sent == is_sent);
            turns.flat_map(|(_, bytes)| bytes.clone()).collect()
        };
        let (count, answered) = serve_bytes(&side(true), None, Limits::default());
        assert_eq!(answered, side(false));
        assert_eq!(count, requests);
    }
}

/// A server that plays a recording without some calls to the one client that comes; its address, and the name of the call
/// in which the client left.
fn playing(text: &'static str, without: &'static [&'static str]) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIME)).unwrap();
        for call in recording(text).into_iter().filter(|call| !without.contains(&call.name.as_str())) {
            for (is_sent, bytes) in &call.turns {
                if !play(&mut stream, &call.name, *is_sent, bytes) {
                    return call.name;
                }
            }
        }
        String::new()
    });
    (address, server)
}

/// Does what was recorded by our client, whose every byte must be the recorded one but for the number of the greeting.
#[test]
fn the_client_asks_as_torchs() {
    let (address, server) = playing(STORE, &[]);
    let store = TcpStore::connect(&address, TIME).unwrap();
    store.set("a", b"1").unwrap();
    assert_eq!(store.get("a", TIME).unwrap(), b"1");
    assert_eq!((store.add("n", 5).unwrap(), store.add("n", -7).unwrap()), (5, -2));
    assert!(store.check(&["a", "n"]).unwrap() && !store.check(&["a", "zz"]).unwrap());
    store.wait(&["a", "n"], TIME).unwrap();
    drop(store);
    assert_eq!(server.join().unwrap(), "wait zz times out", "the recording goes on, and the client does not");
}

#[test]
fn the_client_asks_for_queues_as_torchs() {
    // Our client always waits for a value before it takes one, and asks for more when it has waited in vain.
    let without = &[
        "queue_pop of nothing",
        "queue_pop without waiting",
        "queue_pop of an empty one",
        "queue_pop that waits in vain",
        "list_keys",
    ];
    let (address, server) = playing(QUEUE, without);
    let store = TcpStore::connect(&address, TIME).unwrap();
    assert_eq!(store.queue_len("q").unwrap(), 0);
    ["1", "22", ""].iter().for_each(|value| store.queue_push("q", value.as_bytes()).unwrap());
    assert_eq!(store.queue_len("q").unwrap(), 3);
    assert_eq!((store.check(&["q"]).unwrap(), store.num_keys().unwrap()), (true, 0));
    assert_eq!([store.queue_pop("q", TIME).unwrap(), store.queue_pop("q", TIME).unwrap()], [&b"1"[..], b""]);
    assert_eq!((store.queue_len("q").unwrap(), store.check(&["q"]).unwrap()), (0, false));
    store.set("q", b"value").unwrap();
    store.queue_push("q", b"3").unwrap();
    assert_eq!((store.get("q", TIME).unwrap(), store.num_keys().unwrap()), (b"value".to_vec(), 1));
    assert!(store.delete_key("q").unwrap(), "the value goes, and the queue stays");
    assert_eq!((store.queue_len("q").unwrap(), store.check(&["q"]).unwrap()), (1, true));
    drop(store);
    assert_eq!(server.join().unwrap(), "", "the client has asked for all of it");
}

/// One turn of the recorded server: reads what the client must send, or answers; whether the client was there.
fn play(stream: &mut TcpStream, name: &str, is_sent: bool, bytes: &[u8]) -> bool {
    if !is_sent {
        let nonce = std::process::id().to_le_bytes();
        return stream.write_all(if name == "connected" { &nonce } else { bytes }).is_ok();
    }
    let mut got = vec![0; bytes.len()];
    if stream.read_exact(&mut got).is_err() {
        return false;
    }
    let compared = if name == "connected" { 6 } else { bytes.len() };
    assert_eq!(got[..compared], bytes[..compared], "{name}");
    true
}

#[test]
fn a_stranger_is_sent_away_and_the_others_are_served() {
    let limits = Limits { connections: 3, seconds: 1, ..Limits::default() };
    let server = TcpStoreServer::with(&TcpServerOptions { limits, ..TcpServerOptions::default() }).unwrap();
    let store = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    store.set("key", b"value").unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 1, 2, 3, 4], &[200], &[0xff; 4096]] {
        let mut stranger = TcpStream::connect(server.address()).unwrap();
        stranger.set_read_timeout(Some(TIME)).unwrap();
        let _ = stranger.write_all(garbage);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{garbage:?}: {answer:?}");
    }
    // Whoever says nothing is sent away after a second, and so is whoever does not finish what it began.
    let mut silent = TcpStream::connect(server.address()).unwrap();
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(&[0, 0xce, 0xf7, 0x85, 0x3c, 1, 9, 0, 0]).unwrap();
    // There are three now, so that a fourth is closed at once.
    let mut fourth = TcpStream::connect(server.address()).unwrap();
    for stream in [&mut fourth, &mut silent, &mut slow] {
        stream.set_read_timeout(Some(TIME)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    assert_eq!(store.get("key", TIME).unwrap(), b"value");
    assert_eq!(store.num_keys().unwrap(), 1);
}

#[test]
fn a_token_is_wanted_and_not_shown() {
    let options = TcpServerOptions { token: Some("secret".to_owned()), ..TcpServerOptions::default() };
    assert!(!format!("{options:?}").contains("secret"));
    let server = TcpStoreServer::with(&options).unwrap();
    let connect = |token: Option<&str>| {
        let options = TcpStoreOptions { timeout: Duration::from_secs(5), token: token.map(str::to_owned) };
        assert!(!format!("{options:?}").contains("secret"));
        TcpStore::with(&server.address().to_string(), options)
    };
    connect(Some("secret")).unwrap().set("key", b"value").unwrap();
    for wrong in [None, Some("guess")] {
        assert!(matches!(connect(wrong), Err(Error::Protocol { .. })), "{wrong:?}");
    }
    // A server without one, such as torch's, takes none.
    let plain = TcpStoreServer::with(&TcpServerOptions::default()).unwrap();
    let options = TcpStoreOptions { timeout: Duration::from_secs(5), token: Some("secret".to_owned()) };
    let refused = TcpStore::with(&plain.address().to_string(), options);
    assert!(matches!(refused, Err(Error::Protocol { .. })), "{refused:?}");
}

#[test]
fn a_port_in_use_and_a_silent_address_are_named() {
    let server = TcpStoreServer::with(&TcpServerOptions::default()).unwrap();
    let address = server.address();
    let error = TcpStoreServer::new(address).unwrap_err();
    assert!(matches!(error, Error::PortInUse { address: named } if named == address), "{error}");
    let store = TcpStore::connect(&address.to_string(), TIME).unwrap();
    drop(server);
    let error = store.add("key", 1).unwrap_err();
    assert!(matches!(&error, Error::StoreLost { store, .. } if *store == address.to_string()), "{error}");
    // Once lost it stays so.
    assert!(matches!(store.set("key", b""), Err(Error::StoreLost { .. })));
    let error = TcpStore::connect(&address.to_string(), Duration::from_millis(100)).unwrap_err();
    assert!(matches!(&error, Error::Connect { address: named, .. } if *named == address.to_string()), "{error}");
}

#[test]
fn a_sum_that_cannot_be_is_an_error_of_its_value_and_the_store_stays() {
    let server = TcpStoreServer::with(&TcpServerOptions::default()).unwrap();
    let store = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    store.set("text", b"text").unwrap();
    store.set("most", i64::MAX.to_string().as_bytes()).unwrap();
    let error = store.add("text", 1).unwrap_err();
    assert_eq!(error.to_string(), "the value of 'text' is no number, so nothing can be added to it");
    assert!(matches!(error, Error::Value { key, .. } if key == "text"));
    let error = store.add("most", 1).unwrap_err();
    let sum = "is 9223372036854775807, to which 1 cannot be added in 64 bits";
    assert_eq!(error.to_string(), format!("the value of 'most' {sum}"));
    assert_eq!((store.add("n", 2).unwrap(), store.get("text", TIME).unwrap()), (2, b"text".to_vec()));
    // The key is reported with its prefix, as the server knows it.
    let prefix = PrefixStore::new("part", Arc::new(store));
    prefix.set("text", b"text").unwrap();
    assert!(matches!(prefix.add("text", 1), Err(Error::Value { key, .. }) if key == "part/text"));
}

#[test]
fn a_refused_request_is_told_from_a_lost_store() {
    let limits = Limits { store_bytes: 1000, value_bytes: 500, waiting_bytes: 300, ..Limits::default() };
    let server = TcpStoreServer::with(&TcpServerOptions { limits, ..TcpServerOptions::default() }).unwrap();
    let store = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    let refused = |error: Error| assert!(matches!(error, Error::StoreRefused { .. }), "{error}");
    // A value that is too long: `set` has no reply, so the next request reports the error.
    store.set("long", &[0; 501]).unwrap();
    refused(store.num_keys().unwrap_err());
    // A store that is full.
    store.set("a", &[0; 500]).unwrap();
    refused(store.compare_set("b", b"", &[0; 500]).unwrap_err());
    // More keys than a client may wait for.
    let keys: Vec<String> = (0..10).map(|key| key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    refused(store.wait(&keys, TIME).unwrap_err());
    assert_eq!((store.num_keys().unwrap(), store.get("a", TIME).unwrap().len()), (1, 500));
    drop(server);
    assert!(matches!(store.num_keys(), Err(Error::StoreLost { .. })));
}
