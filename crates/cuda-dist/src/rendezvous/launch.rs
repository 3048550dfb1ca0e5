//! Which rank this process is, by the variables of whoever started it.
//!
//! Looked for in this order, and all of one group are taken from one of them: torch's own (`torchrun`), Open MPI's,
//! MVAPICH's, those of PMI (MPICH, Intel MPI), Slurm's, Flux's, and those of an indexed job of Kubernetes.
//!
//! Invariant: nothing is guessed: a variable that is there and no number is an error that names it.

use crate::error::{Error, Result};

/// Which rank this process is, and where the ranks meet.
///
/// ```
/// use cuda_dist::Launch;
///
/// let variables = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
/// let launch = Launch::from_variables(&|name| {
///     variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
/// })?;
/// assert_eq!((launch.rank, launch.world_size, launch.master_port), (1, 2, 29500));
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Who started it: `torchrun`, `Open MPI`, `MVAPICH`, `PMI`, `Slurm`, `Flux` or `Kubernetes`.
    pub by: &'static str,
    /// The rank, from 0 on.
    pub rank: usize,
    /// How many ranks there are.
    pub world_size: usize,
    /// The how manieth rank of this host it is, where that is said: which device to take.
    pub local_rank: Option<usize>,
    /// The host where the store is.
    pub master_addr: String,
    /// The port where the store is.
    pub master_port: u16,
    /// The launcher holds the store, so that rank 0 does not (`TORCHELASTIC_USE_AGENT_STORE`).
    pub agent_has_store: bool,
    /// How often the launcher has started the ranks again (`TORCHELASTIC_RESTART_COUNT`).
    pub restarts: u64,
}

/// Variables by their names.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

struct Names {
    by: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
}

const LAUNCHERS: [Names; 7] = [
    Names {
        by: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Names {
        by: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Names {
        by: "MVAPICH",
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local_rank: "MV2_COMM_WORLD_LOCAL_RANK",
        local_size: "MV2_COMM_WORLD_LOCAL_SIZE",
    },
    Names {
        by: "PMI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Names { by: "Slurm", rank: "SLURM_PROCID", size: "SLURM_NTASKS", local_rank: "SLURM_LOCALID", local_size: "" },
    Names {
        by: "Flux",
        rank: "FLUX_TASK_RANK",
        size: "FLUX_JOB_SIZE",
        local_rank: "FLUX_TASK_LOCAL_ID",
        local_size: "",
    },
    Names {
        by: "Kubernetes",
        rank: "JOB_COMPLETION_INDEX",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
];

impl Launch {
    /// By the variables of this process.
    ///
    /// # Errors
    /// A variable is missing or is no number; the error names it.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    /// By variables that a function gives.
    ///
    /// # Errors
    /// A variable is missing or is no number; the error names it.
    pub fn from_variables(variables: Variables<'_>) -> Result<Self> {
        let variables = &|name: &str| variables(name).filter(|value| !value.is_empty());
        let names = LAUNCHERS.iter().find(|names| variables(names.rank).is_some()).ok_or_else(nobody)?;
        let rank = number(variables, names.rank)?;
        let world_size: usize = number(variables, names.size)?;
        if rank >= world_size {
            let problem = format!("is {rank}, but {} is {world_size}: ranks count from 0", names.size);
            return Err(Error::Variable { name: names.rank.to_owned(), problem });
        }
        let local_rank = variables(names.local_rank).map(|_| number(variables, names.local_rank)).transpose()?;
        let is_one_host = variables(names.local_size) == Some(world_size.to_string())
            || variables("SLURM_NNODES").is_some_and(|nodes| nodes == "1");
        Ok(Self {
            by: names.by,
            rank,
            world_size,
            local_rank,
            master_addr: master_addr(variables, names, is_one_host)?,
            master_port: master_port(variables, names)?,
            agent_has_store: variables("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
            restarts: variables("TORCHELASTIC_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0),
        })
    }
}

fn nobody() -> Error {
    let others: Vec<&str> = LAUNCHERS[1..].iter().map(|names| names.rank).collect();
    let problem =
        format!("is not set, nor is {}: start the ranks by torchrun, mpirun or srun, or set it", others.join(", "));
    Error::Variable { name: LAUNCHERS[0].rank.to_owned(), problem }
}

fn missing(name: &str, hint: &str) -> Error {
    Error::Variable { name: name.to_owned(), problem: format!("is not set{hint}") }
}

/// A variable that must be there and be a number.
pub(super) fn number<T: std::str::FromStr>(variables: Variables<'_>, name: &str) -> Result<T> {
    let text = variables(name).ok_or_else(|| missing(name, ""))?;
    let problem = || format!("is '{text}', which is no number that it can be");
    text.trim().parse().map_err(|_| Error::Variable { name: name.to_owned(), problem: problem() })
}

fn master_addr(variables: Variables<'_>, names: &Names, is_one_host: bool) -> Result<String> {
    if let Some(address) = variables("MASTER_ADDR") {
        return Ok(address);
    }
    let nodes = variables("SLURM_STEP_NODELIST").or_else(|| variables("SLURM_JOB_NODELIST"));
    if names.by == "Slurm"
        && let Some(first) = nodes.as_deref().and_then(first_node)
    {
        return Ok(first);
    }
    if is_one_host && names.by != "torchrun" {
        return Ok("127.0.0.1".to_owned());
    }
    Err(missing("MASTER_ADDR", ": it is the host of rank 0, the same for all ranks (with mpirun: -x MASTER_ADDR=HOST)"))
}

/// Ports that are given to jobs of Slurm by their numbers, as many do by hand.
const SLURM_PORTS: (u64, u64) = (15_000, 20_000);

fn master_port(variables: Variables<'_>, names: &Names) -> Result<u16> {
    if variables("MASTER_PORT").is_some() {
        return number(variables, "MASTER_PORT");
    }
    if names.by == "Slurm" && variables("SLURM_JOB_ID").is_some() {
        let job: u64 = number(variables, "SLURM_JOB_ID")?;
        return Ok(u16::try_from(SLURM_PORTS.0 + job % SLURM_PORTS.1).unwrap_or(29_500));
    }
    Err(missing("MASTER_PORT", ": it is a free port of the host of rank 0, the same for all ranks"))
}

/// The first host of a list such as `node[07-09,12],other`.
fn first_node(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at_checked(end)?;
    let Some(inside) = rest.strip_prefix('[') else { return Some(name.to_owned()).filter(|name| !name.is_empty()) };
    let (numbers, behind) = inside.split_once(']')?;
    let first = numbers.split([',', '-']).next().filter(|first| !first.is_empty())?;
    let suffix = behind.split(',').next().unwrap_or_default();
    Some(format!("{name}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::{Launch, first_node};
    use crate::Error;

    fn launch(variables: &[(&str, &str)]) -> Result<Launch, Error> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Launch::from_variables(&find)
    }

    fn named(variables: &[(&str, &str)]) -> String {
        match launch(variables) {
            Err(Error::Variable { name, .. }) => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn torchrun_goes_before_the_others() {
        let both = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "h"),
            ("MASTER_PORT", "1"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "9"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        let launch = launch(&both).unwrap();
        assert_eq!((launch.by, launch.rank, launch.world_size, launch.local_rank), ("torchrun", 3, 4, Some(1)));
        assert!(launch.agent_has_store);
    }

    #[test]
    fn ranks_of_one_host_meet_there() {
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("MASTER_PORT", "29500"),
        ];
        assert_eq!(launch(&mpi).unwrap().master_addr, "127.0.0.1");
        assert_eq!(named(&mpi[..3]), "MASTER_ADDR");
        assert_eq!(named(&mpi[..4]), "MASTER_PORT");
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        for names in &super::LAUNCHERS {
            let all = [
                (names.rank, "1"),
                (names.size, "2"),
                (names.local_rank, "1"),
                ("MASTER_ADDR", "host"),
                ("MASTER_PORT", "1"),
            ];
            let launch = launch(&all).unwrap();
            assert_eq!((launch.by, launch.rank, launch.world_size, launch.local_rank), (names.by, 1, 2, Some(1)));
            // A rank without a size is not guessed.
            assert_eq!(named(&[(names.rank, "1")]), names.size);
            assert_eq!(named(&[(names.rank, "one"), (names.size, "2")]), names.rank);
        }
    }

    #[test]
    fn slurm_says_where_the_first_node_is() {
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "gpu[07-09,12],other"),
            ("SLURM_JOB_ID", "123456"),
        ];
        let launch = launch(&slurm).unwrap();
        assert_eq!((launch.master_addr.as_str(), launch.master_port, launch.by), ("gpu07", 18456, "Slurm"));
        assert_eq!(first_node("a,b").unwrap(), "a");
        assert_eq!(first_node("a[1]-x,b").unwrap(), "a1-x");
        assert_eq!(first_node("a[1").or(first_node("")), None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert_eq!(named(&[]), "RANK");
        assert_eq!(named(&[("RANK", "0")]), "WORLD_SIZE");
        assert_eq!(named(&[("RANK", "x"), ("WORLD_SIZE", "1")]), "RANK");
        assert_eq!(named(&[("RANK", "2"), ("WORLD_SIZE", "2")]), "RANK");
        assert_eq!(named(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "-1")]), "LOCAL_RANK");
        let all = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "70000")];
        assert_eq!(named(&all[..3]), "MASTER_PORT");
        assert_eq!(named(&all), "MASTER_PORT");
    }
}
