//! Groups of real processes: this program starts itself once for each rank, with the variables that `torchrun` sets.
//!
//! What a rank has to say it prints as a line that begins with `=`; the test framework prints lines too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "ranks report to the test by their output")]

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{DType, Tensor};
use cuda_dist::{
    BackendKind, Error, GroupOptions, InitOptions, P2POp, ProcessGroup, ReduceOp, RendezvousOptions, Work,
};

const ROLE: &str = "CUDA_DIST_TEST_ROLE";
const URL: &str = "CUDA_DIST_TEST_URL";

/// How long a collective may take where it is to fail.
const SHORT: Duration = Duration::from_millis(1500);

/// The part of a rank, which is this program with a variable set.
#[test]
fn the_process_of_a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let url = std::env::var(URL).unwrap_or_else(|_| "env://".to_owned());
    let is_short = !role.ends_with("collectives");
    let (role, backend) = match role.strip_prefix("nccl ") {
        Some(role) => (role.to_owned(), nccl()),
        None => (role, BackendKind::Store),
    };
    let options = InitOptions {
        backend,
        timeout: if is_short { SHORT } else { Duration::from_secs(60) },
        rendezvous: RendezvousOptions { timeout: Duration::from_secs(60), ..RendezvousOptions::default() },
        ..InitOptions::default()
    };
    let group = ProcessGroup::init(&url, &options).unwrap();
    let outcome = match role.as_str() {
        "collectives" => collectives(&group),
        "differ" => differ(&group),
        "monitored" => monitored(&group),
        _ => killed(&group, &role),
    };
    match outcome {
        Ok(()) => println!("\n=well"),
        Err(error) => println!("\n={}", error.to_string().replace('\n', "|")),
    }
    // Rank 0 holds the store, and stays until the others have said what they know.
    if let Err(error) = group.destroy() {
        println!("\n(destroyed: {error})");
    }
}

/// The simulated NCCL, on a machine of this process.
fn nccl() -> BackendKind {
    testkit::make_default(testkit::Config::default().nccl_timeout(Duration::from_secs(60))).unwrap();
    aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    BackendKind::Nccl
}

/// Where the group's backend takes tensors.
fn place(group: &ProcessGroup, tensor: Tensor) -> Tensor {
    group.device().map_or_else(|| tensor.clone(), |device| tensor.to_device(device).unwrap())
}

fn collectives(group: &ProcessGroup) -> Result<(), Error> {
    let (rank, size) = (group.rank() as f32, group.size() as f32);
    let own = || Ok::<_, Error>(place(group, Tensor::from_slice(&[rank + 1.0, -rank], &[2])?));
    let all = |from: f32| (0..group.size()).map(move |rank| rank as f32 + from);
    for _ in 0..10 {
        let tensor = own()?;
        group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
        assert_eq!(tensor.to_vec::<f32>()?, [all(1.0).sum::<f32>(), -all(0.0).sum::<f32>()]);
    }
    let expected = [(ReduceOp::Product, all(1.0).product()), (ReduceOp::Min, 1.0), (ReduceOp::Max, size)];
    for (op, first) in expected.into_iter().chain([(ReduceOp::Avg, all(1.0).sum::<f32>() / size)]) {
        let tensor = own()?;
        group.all_reduce(&tensor, op)?.wait()?;
        assert_eq!(tensor.to_vec::<f32>()?[0], first, "{op:?}");
    }
    let tensor = own()?;
    group.broadcast(&tensor, 1)?.wait()?;
    assert_eq!(tensor.to_vec::<f32>()?, [2.0, -1.0]);
    let tensor = own()?;
    group.reduce(&tensor, 1, ReduceOp::Sum)?.wait()?;
    assert_eq!(tensor.to_vec::<f32>()?[0], if rank == 1.0 { all(1.0).sum() } else { rank + 1.0 });
    let gathered = place(group, Tensor::zeros(&[2 * group.size().cast_signed() as i64], DType::F32, "cpu")?);
    group.all_gather_into_tensor(&gathered, &own()?)?.wait()?;
    let expected: Vec<f32> = all(0.0).flat_map(|rank| [rank + 1.0, -rank]).collect();
    assert_eq!(gathered.to_vec::<f32>()?, expected);
    let part = place(group, Tensor::zeros(&[2], DType::F32, "cpu")?);
    group.reduce_scatter_tensor(&part, &gathered, ReduceOp::Sum)?.wait()?;
    assert_eq!(part.to_vec::<f32>()?, [size * (rank + 1.0), -size * rank]);
    messages(group)?;
    // Many at once, which end in their order.
    let works = (0..20).map(|_| group.barrier()).collect::<Result<Vec<_>, _>>()?;
    works.last().unwrap().wait()?;
    assert!(works.iter().all(Work::is_completed));
    group.monitored_barrier(Duration::from_secs(60), true)
}

/// To the next rank and from the one before, and beside that in a group of the even ranks.
fn messages(group: &ProcessGroup) -> Result<(), Error> {
    let (rank, size) = (group.rank(), group.size());
    let (input, output) =
        (place(group, Tensor::from_slice(&[rank as i64], &[1])?), place(group, Tensor::from_slice(&[0_i64], &[1])?));
    let before = (rank + size - 1) % size;
    let both = [P2POp::isend(&input, (rank + 1) % size), P2POp::irecv(&output, before)];
    group.batch_isend_irecv(&both)?.iter().try_for_each(Work::wait)?;
    assert_eq!(output.to_vec::<i64>()?, [before as i64]);
    let even: Vec<usize> = (0..size).step_by(2).collect();
    match group.new_group(&even, &GroupOptions::default()) {
        Ok(part) => {
            part.all_reduce(&input, ReduceOp::Sum)?.wait()?;
            assert_eq!(input.to_vec::<i64>()?, [even.iter().sum::<usize>() as i64]);
            part.destroy()
        }
        Err(Error::NotInGroup { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The last rank calls something else.
fn differ(group: &ProcessGroup) -> Result<(), Error> {
    let tensor = place(group, Tensor::zeros(&[4], DType::F32, "cpu")?);
    group.barrier()?.wait()?;
    if group.rank() + 1 == group.size() {
        return done(&group.broadcast(&tensor, 0)?);
    }
    done(&group.all_reduce(&tensor, ReduceOp::Sum)?)
}

/// The last rank does not come to the barrier.
fn monitored(group: &ProcessGroup) -> Result<(), Error> {
    if group.rank() + 1 == group.size() {
        return Ok(());
    }
    group.monitored_barrier(SHORT, true)
}

/// The last rank waits to be killed: `before` it calls anything, `in` a collective, or `after` one.
fn killed(group: &ProcessGroup, when: &str) -> Result<(), Error> {
    let tensor = place(group, Tensor::zeros(&[4], DType::F32, "cpu")?);
    let is_victim = group.rank() + 1 == group.size();
    if when != "before" {
        done(&group.all_reduce(&tensor, ReduceOp::Sum)?)?;
    }
    if is_victim {
        let begun = if when == "in" { Some(group.broadcast(&tensor, 0)?) } else { None };
        // Long enough for its watch-dog to write what it did.
        thread::sleep(Duration::from_millis(300));
        println!("\n=ready");
        thread::sleep(Duration::from_secs(60));
        drop(begun);
    }
    // By then the victim has been killed.
    thread::sleep(Duration::from_millis(700));
    let mut outcome = done(&group.broadcast(&tensor, 0)?);
    if when == "in" {
        // What it had called may have ended well; the next one does not.
        outcome = outcome.and_then(|()| done(&group.all_reduce(&tensor, ReduceOp::Max)?));
    }
    outcome
}

/// Waits on the host also where streams could be ordered.
fn done(work: &Work) -> Result<(), Error> {
    work.wait_timeout(Duration::from_secs(60))
}

/// A port that nobody else is given for a minute: a connection to it has just been closed from its side, so that the system
/// gives it to whoever names it and to nobody who takes any.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    drop(listener.accept().unwrap());
    // The end of the connection has come.
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    address.port()
}

fn start(role: &str, rank: usize, size: usize, variables: &[(&str, String)]) -> Child {
    process(role, rank, size, variables).spawn().unwrap()
}

/// The process of a rank before it begins; its errors are printed with those of the test.
fn process(role: &str, rank: usize, size: usize, variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_process_of_a_rank", "--nocapture"]);
    command.env(ROLE, role).env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("TORCH_NCCL_COORD_CHECK_MILSEC", "100").env_remove("TORCHELASTIC_USE_AGENT_STORE");
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdout(Stdio::piped());
    command
}

fn start_all(role: &str, size: usize) -> Vec<Child> {
    start_all_with(role, size, &[])
}

fn start_all_with(role: &str, size: usize, variables: &[(&str, String)]) -> Vec<Child> {
    let place = [("MASTER_ADDR", "127.0.0.1".to_owned()), ("MASTER_PORT", free_port().to_string())];
    let variables = [&place[..], variables].concat();
    (0..size).map(|rank| start(role, rank, size, &variables)).collect()
}

/// What a rank said last.
fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().filter_map(|line| line.strip_prefix('=')).next_back();
    last.unwrap_or_else(|| panic!("a rank said nothing: {text}")).to_owned()
}

#[test]
fn two_to_eight_processes_compute_together() {
    for size in [2, 3, 8] {
        for child in start_all("collectives", size) {
            assert_eq!(said(child), "well", "{size} ranks");
        }
    }
}

#[test]
fn processes_compute_by_nccl() {
    for nonblocking in ["1", "0"] {
        let variables = [("TORCH_NCCL_USE_COMM_NONBLOCKING", nonblocking.to_owned())];
        for child in start_all_with("nccl collectives", 3, &variables) {
            assert_eq!(said(child), "well");
        }
    }
}

#[test]
fn a_rank_that_dies_under_nccl_is_named_too() {
    nccl_ranks_name_the_dead("1");
}

#[test]
fn a_rank_that_dies_under_direct_calls_of_nccl_is_named_too() {
    nccl_ranks_name_the_dead("0");
}

/// Whether calls go straight to NCCL (`0`) or not.
fn nccl_ranks_name_the_dead(nonblocking: &str) {
    for when in ["nccl before", "nccl in", "nccl after"] {
        let (texts, time) = others_of_a_killed_rank(when, nonblocking);
        assert!(time < SHORT + Duration::from_secs(15), "{when}: {time:?}");
        assert!(texts.len() == 2 && texts.iter().all(|text| text.contains("rank 2")), "{when}: {texts:?}");
    }
}

#[test]
fn a_file_will_do_where_there_is_no_network() {
    let path: PathBuf = std::env::temp_dir().join(format!("cuda-dist-processes-{}", std::process::id()));
    let url = |rank: usize| [(URL, format!("file://{}?rank={rank}&world_size=3", path.display()))];
    let children: Vec<Child> = (0..3).map(|rank| start("collectives", rank, 3, &url(rank))).collect();
    for child in children {
        assert_eq!(said(child), "well");
    }
    assert!(!path.exists(), "the last one removes it");
}

/// Kills the last of three ranks; what the others said, and how long it took them.
fn others_of_a_killed_rank(when: &str, nonblocking: &str) -> (Vec<String>, Duration) {
    use std::io::{BufRead as _, BufReader};
    let mut children = start_all_with(when, 3, &[("TORCH_NCCL_USE_COMM_NONBLOCKING", nonblocking.to_owned())]);
    let mut victim = children.pop().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let is_ready = lines.map_while(Result::ok).any(|line| line == "=ready");
    assert!(is_ready);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let begin = Instant::now();
    (children.into_iter().map(said).collect(), begin.elapsed())
}

#[test]
fn a_rank_that_dies_is_named_within_the_time_out() {
    for (when, last) in [
        ("before", "rank 2 had called nothing when it last wrote, and gives no sign of life"),
        ("in", "rank 2 "),
        (
            "after",
            "rank 2 last called all_reduce #1 of float32 [4] (sum), which is done there, and gives no sign of life",
        ),
    ] {
        let (texts, time) = others_of_a_killed_rank(when, "1");
        assert!(time < SHORT + Duration::from_secs(8), "{when}: {time:?}");
        for text in &texts {
            assert!(text.contains("never called by rank 2") && text.contains(last), "{when}: {text}");
            assert!(text.contains("gives no sign of life"), "{when}: {text}");
        }
        assert_eq!(texts.len(), 2);
    }
}

#[test]
fn ranks_that_call_different_collectives_are_named() {
    let texts: Vec<String> = start_all("differ", 3).into_iter().map(said).collect();
    for text in &texts[..2] {
        assert!(text.contains("called all_reduce #2 of float32 [4] (sum), but rank 2 called broadcast #2"), "{text}");
    }
    assert!(
        texts[2].contains("rank 2 called broadcast #2 of float32 [4] (root 0), but rank 0 called all_reduce"),
        "{}",
        texts[2]
    );
}

#[test]
fn a_monitored_barrier_names_who_is_missing() {
    let texts: Vec<String> = start_all("monitored", 3).into_iter().map(said).collect();
    assert!(texts[0].contains("2 came: rank 2 is missing"), "{}", texts[0]);
    assert!(texts[1].contains("rank 0 gave up") && texts[1].contains("rank 2 is missing"), "{}", texts[1]);
    assert_eq!(texts[2], "well");
}

#[test]
fn a_rendezvous_that_nobody_joins_says_who_is_missing() {
    let options = InitOptions {
        rendezvous: RendezvousOptions { timeout: Duration::from_millis(300), ..RendezvousOptions::default() },
        ..InitOptions::default()
    };
    let at = |port: u16, rank: usize| {
        ProcessGroup::init(&format!("tcp://127.0.0.1:{port}?rank={rank}&world_size=4"), &options).unwrap_err()
    };
    let error = at(free_port(), 0);
    assert!(matches!(&error, Error::RanksMissing { missing, joined: 1, .. } if *missing == [1, 2, 3]), "{error}");
    assert!(error.to_string().ends_with("1 came: ranks 1, 2 and 3 are missing"), "{error}");
    // Without rank 0 there is no store.
    assert!(matches!(at(free_port(), 1), Error::Connect { .. }));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(matches!(at(taken.local_addr().unwrap().port(), 0), Error::PortInUse { .. }));
    let path = std::env::temp_dir().join(format!("cuda-dist-alone-{}", std::process::id()));
    let error = ProcessGroup::init(&format!("file://{}?rank=1&world_size=2", path.display()), &options).unwrap_err();
    assert!(matches!(&error, Error::RanksMissing { missing, .. } if *missing == [0]), "{error}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_address_that_is_none_is_refused() {
    let options = InitOptions::default();
    for url in [
        "",
        "tcp:/x",
        "http://host:1?rank=0&world_size=1",
        "tcp://host?rank=0&world_size=1",
        "tcp://host:99999?rank=0&world_size=1",
        "tcp://host:1",
        "tcp://host:1?rank=1&world_size=1",
        "tcp://host:1?rank=x&world_size=1",
        "file://?rank=0&world_size=1",
        "file:///tmp/x?rank=0",
    ] {
        let error = ProcessGroup::init(url, &options).unwrap_err();
        assert!(matches!(&error, Error::Url { url: named, .. } if named == url), "{url}: {error}");
    }
}

#[test]
fn a_process_ends_where_it_is_told_to() {
    use std::os::unix::process::ExitStatusExt as _;
    let place = [
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", free_port().to_string()),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1".to_owned()),
        ("TORCH_NCCL_DESYNC_DEBUG", "0".to_owned()),
    ];
    let first = process("before", 0, 2, &place).stderr(Stdio::piped()).spawn().unwrap();
    let mut victim = start("before", 1, 2, &place);
    let ended = first.wait_with_output().unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(ended.status.signal(), Some(6), "{}", ended.status);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("rank 0: ") && said.contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "{said}");
}

#[test]
fn a_file_that_killed_ranks_left_is_stale() {
    let path: PathBuf = std::env::temp_dir().join(format!("cuda-dist-killed-{}", std::process::id()));
    let url = |rank: usize| [(URL, format!("file://{}?rank={rank}&world_size=2", path.display()))];
    let mut killed = start("collectives", 1, 2, &url(1));
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 40 {
        thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let error = ProcessGroup::init(&url(1)[0].1, &InitOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::StaleFile { path: named, .. } if *named == path), "{error}");
    assert!(error.to_string().contains("rank 1 has come twice"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
