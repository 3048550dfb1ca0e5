#!/bin/sh
# Ranks started by mpirun of Open MPI, MPICH, MVAPICH or Intel MPI: RANKS in all, on this host or on HOSTS (as mpirun wants
# them, for example `one:2,two:2`), and then MASTER_ADDR is the first. Rank 0 holds the store in which they meet.
#
#   RANKS=2 examples/launch/mpirun.sh target/release/distributed --nccl
set -eu
: "${1:?usage: [RANKS=N] mpirun.sh PROGRAM [ARGUMENT...]}"
export MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-29500}"
if [ -n "${HOSTS:-}" ]; then
    [ "$MASTER_ADDR" != 127.0.0.1 ] || { echo "mpirun.sh: MASTER_ADDR must name the first of $HOSTS" >&2; exit 2; }
    set -- --host "$HOSTS" "$@"
fi
# Open MPI hands on those variables alone that it is told; the others hand on all.
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
    set -- -x MASTER_ADDR -x MASTER_PORT "$@"
fi
exec mpirun -n "${RANKS:-2}" "$@"
