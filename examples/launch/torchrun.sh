#!/bin/sh
# Ranks started by torchrun: RANKS on this host, or on each of NODES hosts, of which this is number NODE_RANK and
# MASTER_ADDR the first. torchrun holds the store in which they meet.
#
#   RANKS=2 examples/launch/torchrun.sh target/release/distributed --nccl
set -eu
: "${1:?usage: [RANKS=N] torchrun.sh PROGRAM [ARGUMENT...]}"
exec torchrun \
    --nnodes "${NODES:-1}" --node-rank "${NODE_RANK:-0}" --nproc-per-node "${RANKS:-2}" \
    --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    --no-python "$@"
