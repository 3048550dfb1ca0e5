//! Each store by the same rules, and the rules of files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use cuda_dist::{Error, FileStore, HashStore, PrefixStore, Store, TcpServerOptions, TcpStore, TcpStoreServer};
use proptest::prelude::*;

const TIME: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(60);

fn path() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("cuda-dist-stores-{}-{number}", std::process::id()))
}

/// All stores, and what keeps them.
fn stores() -> (TcpStoreServer, Vec<Arc<dyn Store>>) {
    let server = TcpStoreServer::with(&TcpServerOptions::default()).unwrap();
    let tcp = TcpStore::connect(&server.address().to_string(), TIME).unwrap();
    let prefix = PrefixStore::new("part", Arc::new(HashStore::new()));
    let file = FileStore::open(path(), Some(1)).unwrap();
    (server, vec![Arc::new(HashStore::new()), Arc::new(prefix), Arc::new(tcp), Arc::new(file)])
}

#[test]
fn special_and_huge_files_are_no_stores() {
    let folder = std::env::temp_dir().join(format!("cuda-dist-special-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (fifo, sparse) = (folder.join("fifo"), folder.join("sparse"));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    // A length larger than any store's limit, in a file that has that many bytes.
    let promising = folder.join("promising");
    std::fs::write(&promising, [0xff; 8]).unwrap();
    std::fs::OpenOptions::new().append(true).open(&promising).unwrap().set_len(1 << 40).unwrap();
    let cases = [
        (fifo.as_path(), "a FIFO"),
        ("/dev/zero".as_ref(), "a character device"),
        (folder.as_path(), "a directory"),
        (sparse.as_path(), "damaged behind byte 0"),
        (promising.as_path(), "damaged behind byte 0"),
    ];
    for (path, says) in cases {
        let error = FileStore::open(path, Some(1)).unwrap_err();
        assert!(matches!(&error, Error::StaleFile { problem, .. } if problem.contains(says)), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_takes_no_more_than_can_be_read_back() {
    let path = std::env::temp_dir().join(format!("cuda-dist-full-{}", std::process::id()));
    let store = FileStore::open(&path, Some(1)).unwrap();
    store.set("key", &vec![1; 200 << 20]).unwrap();
    assert!(matches!(store.set("other", &vec![2; 100 << 20]), Err(Error::StoreFull(_))));
    store.set("key", b"small").unwrap();
    assert_eq!(store.get("key", TIME).unwrap(), b"small");
    store.set("other", &vec![2; 100 << 20]).unwrap();
    drop(store);
    assert!(!path.exists());
}

#[test]
fn each_store_has_torchs_rules() {
    let (_server, stores) = stores();
    for store in &stores {
        store.set("a", b"1").unwrap();
        assert_eq!(store.compare_set("a", b"1", b"2").unwrap(), b"2", "{store:?}");
        assert_eq!(store.compare_set("a", b"1", b"3").unwrap(), b"2");
        assert_eq!(store.compare_set("no", b"y", b"x").unwrap(), b"y");
        assert_eq!(store.compare_set("new", b"", b"x").unwrap(), b"x");
        store.append("a", b"34").unwrap();
        assert_eq!(store.multi_get(&["a", "new"], TIME).unwrap(), [b"234".to_vec(), b"x".to_vec()]);
        store.multi_set(&[("p", b"7"), ("q", b"")]).unwrap();
        assert_eq!(store.get("q", TIME).unwrap(), b"");
        assert_eq!((store.add("p", 5).unwrap(), store.num_keys().unwrap()), (12, 4));
        assert!(store.delete_key("a").unwrap() && !store.delete_key("a").unwrap());
        assert!(!store.check(&["p", "a"]).unwrap() && store.check(&["p", "q"]).unwrap());
        let error = store.wait(&["p", "a", "b"], SOON).unwrap_err();
        let Error::StoreTimeout { keys, waited } = &error else { panic!("{error}") };
        assert!(keys.iter().all(|key| key.ends_with('a') || key.ends_with('b')) && keys.len() == 2, "{keys:?}");
        assert!(*waited >= SOON);
    }
}

#[test]
fn queues_give_each_value_once_and_in_order() {
    let (_server, stores) = stores();
    let (file, queued) = stores.split_last().unwrap();
    for store in queued {
        store.set("other", b"").unwrap();
        let keys = store.num_keys().unwrap();
        let error = store.queue_pop("q", SOON).unwrap_err();
        assert!(matches!(error, Error::StoreTimeout { .. }), "{store:?}: {error}");
        for value in [b"1", b"2", b"3"] {
            store.queue_push("q", value).unwrap();
        }
        assert_eq!((store.queue_len("q").unwrap(), store.queue_len("no").unwrap()), (3, 0));
        assert!(store.check(&["q"]).unwrap() && store.num_keys().unwrap() == keys && !store.delete_key("q").unwrap());
        let taken: Vec<Vec<u8>> = (0..3).map(|_| store.queue_pop("q", TIME).unwrap()).collect();
        assert_eq!(taken, [b"1", b"2", b"3"]);
        assert!(!store.check(&["q"]).unwrap());
        // A value of the same key is no value of the queue.
        store.set("q", b"value").unwrap();
        assert!(matches!(store.queue_pop("q", SOON), Err(Error::StoreTimeout { .. })));
        // Several wait, and each gets one.
        let others: Vec<_> = (0..3).map(|_| store.duplicate().unwrap()).collect();
        let pop = |other: Arc<dyn Store>| thread::spawn(move || other.queue_pop("jobs", TIME).unwrap());
        let waiting: Vec<_> = others.into_iter().map(pop).collect();
        (0..3_u8).for_each(|job| store.queue_push("jobs", &[job]).unwrap());
        let mut got: Vec<Vec<u8>> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        got.sort();
        assert_eq!(got, [[0], [1], [2]]);
    }
    assert!(matches!(file.queue_push("q", b""), Err(Error::Unsupported { backend: "file", .. })));
    assert!(file.queue_pop("q", SOON).is_err() && file.queue_len("q").is_err());
}

#[test]
fn whoever_waits_gets_the_value_when_it_comes() {
    let (_server, stores) = stores();
    for store in stores {
        let other = store.duplicate().unwrap();
        let waiting = thread::spawn(move || other.get("late", TIME).unwrap());
        thread::sleep(SOON);
        store.set("late", b"value").unwrap();
        assert_eq!(waiting.join().unwrap(), b"value");
    }
}

#[test]
fn a_thread_that_waits_holds_up_no_other_of_its_store() {
    let (_server, stores) = stores();
    for store in stores {
        let ready = Arc::new(Barrier::new(9));
        // Each thread sets the key that the next one waits for, so that one lock around a wait would stop them all.
        let runners: Vec<_> = (0..8_u8)
            .map(|runner| {
                let (store, ready) = (Arc::clone(&store), Arc::clone(&ready));
                thread::spawn(move || {
                    ready.wait();
                    for round in 0..20 {
                        let baton = store.get(&format!("baton {round} {runner}"), TIME).unwrap();
                        store.set(&format!("baton {round} {}", runner + 1), &baton).unwrap();
                        assert!(store.check(&[&format!("baton {round} {}", runner + 1)]).unwrap(), "{store:?}");
                    }
                })
            })
            .collect();
        ready.wait();
        for round in 0..20_u8 {
            store.set(&format!("baton {round} 0"), &[round]).unwrap();
            assert_eq!(store.get(&format!("baton {round} 8"), TIME).unwrap(), [round], "{store:?}");
        }
        runners.into_iter().for_each(|runner| runner.join().unwrap());
    }
}

#[test]
fn sums_of_threads_are_complete() {
    let (_server, stores) = stores();
    for store in stores {
        let threads: Vec<_> = (0..4)
            .map(|_| store.duplicate().unwrap())
            .map(|store| thread::spawn(move || (0..25).for_each(|_| assert!(store.add("n", 2).unwrap() > 0))))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(store.add("n", 0).unwrap(), 200, "{store:?}");
    }
}

/// What PyTorch 2.11 wrote: `set a 1`, `add n 5`, `add n -7`, `compare_set a 1 2`, `delete_key n`, `set b ''`.
const TORCH_FILE: &str = "09000000726566636f756e742f0100000031020000002f610100000031020000002f6e0100000035020000002f6e020000002d32020000002f610100000032030000002d2f6e00000000020000002f6200000000";

#[test]
fn a_file_is_as_torch_writes_it() {
    let path = path();
    let store = FileStore::open(&path, Some(2)).unwrap();
    store.set("a", b"1").unwrap();
    assert_eq!((store.add("n", 5).unwrap(), store.add("n", -7).unwrap()), (5, -2));
    assert_eq!(store.compare_set("a", b"1", b"2").unwrap(), b"2");
    assert!(store.delete_key("n").unwrap());
    store.set("b", b"").unwrap();
    let written: String = std::fs::read(&path).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(written, TORCH_FILE);
    let second = FileStore::open(&path, Some(2)).unwrap();
    assert_eq!(second.get("a", TIME).unwrap(), b"2");
    drop(store);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists(), "the last of two removes it");
}

#[test]
fn a_stale_file_is_refused() {
    let path = path();
    drop(FileStore::open(&path, Some(2)).unwrap());
    let error = FileStore::open(&path, Some(2)).unwrap_err();
    assert!(matches!(&error, Error::StaleFile { path: named, .. } if *named == path), "{error}");
    std::fs::write(&path, b"no store at all").unwrap();
    let error = FileStore::open(&path, Some(2)).unwrap_err();
    assert!(matches!(error, Error::StaleFile { .. }), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = FileStore::open("/nonexistent/folder/file", None).unwrap_err();
    assert!(matches!(error, Error::StoreLost { verb: "opened", .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// All stores answer the same to any program.
    #[test]
    fn stores_agree(program in proptest::collection::vec((0_u8..6, 0_u8..3, -3_i64..4), 0..30)) {
        let (_server, stores) = stores();
        for (operation, key, amount) in program {
            let key = format!("k{key}");
            let value = amount.to_string();
            let answer = |store: &Arc<dyn Store>| match operation {
                0 => store.set(&key, value.as_bytes()).map(|()| Vec::new()),
                1 => store.add(&key, amount).map(|sum| sum.to_le_bytes().to_vec()),
                2 => store.compare_set(&key, value.as_bytes(), b"9"),
                3 => store.delete_key(&key).map(|was_there| vec![u8::from(was_there)]),
                4 => store.check(&[&key]).map(|is_there| vec![u8::from(is_there)]),
                _ => store.num_keys().map(|count| count.to_le_bytes().to_vec()),
            };
            let answers: Vec<Vec<u8>> = stores.iter().map(|store| answer(store).unwrap()).collect();
            prop_assert!(answers.iter().all(|answer| *answer == answers[0]), "{operation} {key} {amount}: {answers:?}");
        }
    }
}
