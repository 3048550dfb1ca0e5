//! Where ranks meet: `env://`, `tcp://` and `file://`, as in torch's `rendezvous`.
//!
//! Invariant: when a rendezvous is made, every rank has come.

mod launch;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use launch::Launch;

use crate::error::{Error, Result};
use crate::store::tcp::{TcpServerOptions, TcpStore, TcpStoreOptions, TcpStoreServer};
use crate::store::{FileStore, PrefixStore, Store};

/// How ranks meet.
///
/// ```
/// let options = cuda_dist::RendezvousOptions::default();
/// assert_eq!(options.timeout.as_secs(), 600);
/// ```
#[derive(Clone)]
pub struct RendezvousOptions {
    /// How long the others are waited for: ten minutes, as in torch.
    pub timeout: Duration,
    /// Where rank 0 listens, where that is not what `MASTER_ADDR` means on its host: behind a service of Kubernetes, for
    /// example, `0.0.0.0`.
    pub bind: Option<String>,
    /// What ranks must know to be let in. No rank of PyTorch can then be among them, nor the store of `torchrun`.
    pub token: Option<String>,
}

impl Default for RendezvousOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(600), bind: None, token: None }
    }
}

impl std::fmt::Debug for RendezvousOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("RendezvousOptions")
            .field("timeout", &self.timeout)
            .field("bind", &self.bind)
            .field("token", &token)
            .finish()
    }
}

/// Ranks that have met: a store that all of them share, and who this one is.
///
/// ```
/// use cuda_dist::{Rendezvous, RendezvousOptions, Store};
///
/// let path = std::env::temp_dir().join(format!("cuda-dist-meet-{}", std::process::id()));
/// let url = format!("file://{}?rank=0&world_size=1", path.display());
/// let met = Rendezvous::meet(&url, &RendezvousOptions::default())?;
/// assert_eq!((met.rank, met.world_size), (0, 1));
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug)]
pub struct Rendezvous {
    /// What all ranks share.
    pub store: Arc<dyn Store>,
    /// The rank of this process.
    pub rank: usize,
    /// How many ranks there are.
    pub world_size: usize,
    /// The how manieth rank of this host it is, where that is said.
    pub local_rank: Option<usize>,
    /// The store's other end, where this process holds it.
    pub server: Option<TcpStoreServer>,
}

impl Rendezvous {
    /// Meets the other ranks at `env://`, `tcp://HOST:PORT?rank=R&world_size=N` or `file:///PATH?rank=R&world_size=N`.
    ///
    /// # Errors
    /// The address or a variable is wrong; the port is in use; no store answers; the file is not fresh; or not all ranks
    /// came in time, and then the error says which are missing.
    pub fn meet(url: &str, options: &RendezvousOptions) -> Result<Self> {
        let problem = |problem: &str| Error::Url { url: url.to_owned(), problem: problem.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| problem("it has no '://'"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        match scheme {
            "env" => Self::by_tcp(&Launch::from_env()?, options),
            "tcp" => {
                let (rank, world_size) = ranks_of(url, query)?;
                let (host, port) = place.rsplit_once(':').ok_or_else(|| problem("the port is missing"))?;
                let launch = Launch {
                    by: "the address",
                    rank,
                    world_size,
                    local_rank: None,
                    master_addr: host.to_owned(),
                    master_port: port.parse().map_err(|_| problem("the port is no number up to 65535"))?,
                    agent_has_store: std::env::var("TORCHELASTIC_USE_AGENT_STORE").is_ok_and(|value| value == "True"),
                    restarts: 0,
                };
                Self::by_tcp(&launch, options)
            }
            "file" if place.is_empty() => Err(problem("the path is missing")),
            "file" => Self::by_file(Path::new(place), ranks_of(url, query)?, options),
            _ => Err(problem("it is none of env://, tcp:// and file://")),
        }
    }

    /// Meets at the store of rank 0 or of the launcher.
    fn by_tcp(launch: &Launch, options: &RendezvousOptions) -> Result<Self> {
        if launch.master_port == 0 && launch.world_size > 1 {
            let problem = "is 0, and the other ranks could not know which port that becomes".to_owned();
            return Err(Error::Variable { name: "MASTER_PORT".to_owned(), problem });
        }
        let begin = Instant::now();
        let server = (launch.rank == 0 && !launch.agent_has_store).then(|| listen(launch, options)).transpose()?;
        let host = launch.master_addr.trim_matches(['[', ']']);
        let address = match &server {
            Some(server) if server.address().ip().is_loopback() => server.address().to_string(),
            _ if host.contains(':') => format!("[{host}]:{}", launch.master_port),
            _ => format!("{host}:{}", launch.master_port),
        };
        let client = TcpStoreOptions { timeout: options.timeout, token: options.token.clone() };
        let store = TcpStore::with(&address, client)?;
        store.count_worker(1)?;
        let count = || store.count_worker(0).map(|count| usize::try_from(count).unwrap_or(0));
        let left = options.timeout.saturating_sub(begin.elapsed());
        wait_for_all(&store, (launch.rank, launch.world_size), launch.restarts, left, &count)?;
        Ok(Self {
            store: Arc::new(store),
            rank: launch.rank,
            world_size: launch.world_size,
            local_rank: launch.local_rank,
            server,
        })
    }

    fn by_file(path: &Path, (rank, world_size): (usize, usize), options: &RendezvousOptions) -> Result<Self> {
        let store = FileStore::open(path, Some(world_size))?;
        wait_for_all(&store, (rank, world_size), 0, options.timeout, &|| Ok(0)).map_err(|error| {
            let Error::Argument(problem) = error else { return error };
            Error::StaleFile { path: path.to_owned(), problem }
        })?;
        Ok(Self { store: Arc::new(store), rank, world_size, local_rank: None, server: None })
    }
}

/// `rank=R&world_size=N`.
fn ranks_of(url: &str, query: &str) -> Result<(usize, usize)> {
    let problem = |problem: String| Error::Url { url: url.to_owned(), problem };
    let number = |name: &str| {
        let text = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name);
        let (_, text) = text.ok_or_else(|| problem(format!("{name} is missing")))?;
        text.parse::<usize>().map_err(|_| problem(format!("{name} is '{text}', which is no number")))
    };
    let (rank, world_size) = (number("rank")?, number("world_size")?);
    if rank >= world_size {
        return Err(problem(format!("rank {rank} of {world_size}: ranks count from 0")));
    }
    Ok((rank, world_size))
}

/// Listens where rank 0 is told to: at the address that the others use, unless the options say another.
fn listen(launch: &Launch, options: &RendezvousOptions) -> Result<TcpStoreServer> {
    let host = options.bind.as_deref().unwrap_or(&launch.master_addr).trim_matches(['[', ']']);
    let refused = |cause: Arc<std::io::Error>| Error::Listen {
        address: format!("{host}:{}", launch.master_port),
        cause,
        hint: "; where MASTER_ADDR is no address of this host, say where to listen by RendezvousOptions::bind",
    };
    let bind: SocketAddr = (host, launch.master_port)
        .to_socket_addrs()
        .and_then(|mut found| found.next().ok_or_else(|| std::io::ErrorKind::NotFound.into()))
        .map_err(|cause| refused(Arc::new(cause)))?;
    let server = TcpServerOptions { bind, token: options.token.clone(), ..TcpServerOptions::default() };
    TcpStoreServer::with(&server)
        .map_err(|error| if let Error::Listen { cause, .. } = error { refused(cause) } else { error })
}

/// Says that this rank has come, and waits for the others. A rank of PyTorch does not say who it is, and is only counted.
fn wait_for_all(
    store: &dyn Store,
    (rank, world_size): (usize, usize),
    restarts: u64,
    timeout: Duration,
    count: &dyn Fn() -> Result<usize>,
) -> Result<()> {
    let begin = Instant::now();
    let key = |rank: usize| format!("cuda_dist/come/{restarts}/{rank}");
    if store.add(&key(rank), 1)? > 1 {
        return Err(Error::Argument(format!(
            "rank {rank} has come twice: two processes have the same rank, or the store is that of an earlier run"
        )));
    }
    let mut missing: Vec<usize> = (0..world_size).collect();
    let mut pause = Duration::from_millis(1);
    loop {
        let mut still = Vec::new();
        for rank in missing {
            if !store.check(&[&key(rank)])? {
                still.push(rank);
            }
        }
        missing = still;
        let joined = count()?.max(world_size - missing.len());
        if missing.is_empty() || joined >= world_size {
            return Ok(());
        }
        let waited = begin.elapsed();
        if waited >= timeout {
            return Err(Error::RanksMissing { rank, world_size, missing, joined, waited });
        }
        thread::sleep(pause.min(timeout.saturating_sub(waited)));
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

impl Rendezvous {
    /// The part of the store that belongs to a group of this name, as `torch.distributed` names it, so that ranks of
    /// PyTorch find the same values.
    #[must_use]
    pub fn group_store(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(PrefixStore::new(
            &format!("{name}/"),
            Arc::new(PrefixStore::new("default_pg", Arc::clone(&self.store))),
        ))
    }
}
