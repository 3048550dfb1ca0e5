#!/bin/sh
# Runs the packed programs: conformance, kernels, demo, examples, benches and, where PyTorch is found, the peers' benches.
#
#   run [real|sim|PATH]     the driver to run on; the real one unless something else is said
#
# Needs nothing but the driver. Ends with a summary and with exit code 1 if anything failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/bin
out=${OUT:-$here/out}
driver=${1:-real}
failed=""
mkdir -p "$out"

step() {
    name=$1
    shift
    echo "== $name: $*"
    begin=$(date +%s)
    if "$@"; then word=ok; else word=FAILED; failed="$failed $name"; fi
    echo "$name $word $(($(date +%s) - begin)) s" >> "$out/summary.txt"
}

# Runs a program, prints its output at the end and keeps it in a file if the program succeeded.
kept() {
    file=$1
    shift
    "$@" > "$file.part"
    status=$?
    cat "$file.part"
    if [ "$status" = 0 ]; then mv "$file.part" "$file"; fi
    return "$status"
}

: > "$out/summary.txt"
rm -f "$out/torch_bench.txt" "$out/bench_alloc.txt"
case $driver in
    real) unset CUDA_SYS_LIBCUDA; arm=real ;;
    sim) CUDA_SYS_LIBCUDA=$bin/libcuda_sim_driver.so; export CUDA_SYS_LIBCUDA; arm=shared:$CUDA_SYS_LIBCUDA ;;
    *) CUDA_SYS_LIBCUDA=$driver; export CUDA_SYS_LIBCUDA; arm=shared:$driver ;;
esac

step conformance-table "$bin/conformance" --arm table
step conformance-shared "$bin/conformance" --arm "shared:$bin/libcuda_sim_driver.so"
if [ "$driver" != sim ]; then step conformance "$bin/conformance" --arm "$arm"; fi
if [ "$driver" = real ]; then step products "$bin/product_kernels"; fi
if [ "$driver" = real ]; then step bytes "$bin/byte_products"; fi
if [ "$driver" = real ]; then step linalg "$bin/linalg_and_fft"; fi
if [ "$driver" = real ]; then step user-kernels "$bin/user_kernels"; fi
# Programs that are compiled, on this device and its libraries; the tests with failures injected need the simulated one.
if [ "$driver" = real ]; then
    step compile-random env COMPILE_DRIVER=real RUST_TEST_THREADS=1 COMPILE_PROGRAMS=400 "$bin/compile_random"
    step compile-epilogues env COMPILE_DRIVER=real RUST_TEST_THREADS=1 "$bin/compile_epilogues" --skip failing
fi
# Several devices: it says itself what it leaves out, and why.
if [ "$driver" = sim ]; then
    step many-devices env CUDA_SIM_DEVICES=3 "$bin/many_devices" --small
else
    step many-devices "$bin/many_devices"
fi
# Two ranks, each a process, as a launcher starts them.
two_ranks() {
    port=$1
    shift
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$bin/distributed" "$@" &
    first=$!
    RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$bin/distributed" "$@"
    second=$?
    wait "$first" && [ "$second" = 0 ]
}
step distributed two_ranks 29571
if [ "$driver" = real ] && "$bin/many_devices" --has-nccl; then
    step distributed-nccl two_ranks 29573 --nccl
else
    echo "== distributed-nccl: left out, it needs the real driver, two devices and NCCL (CUDA_SYS_LIBNCCL names one)"
fi
step kernels "$bin/cuda_kernels" --folder "$here/kernels" --driver "$driver"
step attention "$bin/attention" --driver "$driver"
if [ "$driver" = real ]; then runs=100; else runs=5; fi
step determinism "$bin/determinism" --driver "$driver" --runs "$runs"
if [ "$driver" = sim ]; then elements=6000; else elements=2147483652; fi
step large-tensors "$bin/large_tensors" --driver "$driver" --elements "$elements"
step demo "$bin/demo" --driver "$driver" --trace "$here/data/demo.trace.gz"
step failures "$bin/03_failures"
step ipc "$bin/ipc"
step sharing "$bin/sharing"
step overlap "$bin/04_overlap"
step replay "$bin/05_replay"
step observe "$bin/07_observe" "$out/observe"
step mixed_precision "$bin/08_mixed_precision"
step bench "$bin/bench"
# Tensors of a real GPU are large; the simulated one has small ones.
if [ "$driver" != real ]; then
    step tensors "$bin/tensors" --small
elif python3 -c 'import torch' 2>/dev/null; then
    step tensors kept "$out/tensors.txt" "$bin/tensors" --peer "python3 $bin/tensors_peer.py"
else
    step tensors kept "$out/tensors.txt" "$bin/tensors"
fi

# The peers: built here, since they link PyTorch's own libraries.
peers() {
    site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null) || site=""
    if [ -z "$site" ]; then
        echo "== peers: left out, python3 finds no PyTorch"
        return
    fi
    cuda=$site/nvidia/cu13
    includes="-I$site/torch/include -I$site/torch/include/torch/csrc/api/include -I/usr/local/cuda/include -I$cuda/include"
    libraries="-L$site/torch/lib -Wl,--no-as-needed -ltorch -ltorch_cpu -ltorch_cuda -lc10 -lc10_cuda -L$cuda/lib"
    libraries="$libraries -l:libcudart.so.13 -Wl,-rpath,$site/torch/lib:$cuda/lib -lpthread"
    for source in torch_bench torch_replay; do
        [ -f "$here/peer/$source.cpp" ] || continue
        # shellcheck disable=SC2086
        step "build-$source" g++ -O3 -std=c++20 -w $includes "$here/peer/$source.cpp" -o "$out/$source" $libraries
    done
    if [ -x "$out/torch_bench" ]; then step torch_bench kept "$out/torch_bench.txt" "$out/torch_bench"; fi
    if [ -x "$out/torch_replay" ]; then
        gzip -dc "$here/data/demo.trace.gz" > "$out/demo.trace"
        step torch_replay "$out/torch_replay" "$out/demo.trace"
    fi
    if [ -f "$here/peer/torch_py_bench.py" ]; then
        step torch_py_bench env OUT="$out" python3 "$here/peer/torch_py_bench.py"
    fi
}

raw_driver() {
    [ -f "$here/peer/driver_costs.cpp" ] || return
    library=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1.* => //p' | head -n 1)
    if [ -z "$library" ] || ! command -v g++ > /dev/null; then
        echo "== driver_costs: left out, needs g++ and a system libcuda"
        return
    fi
    cuda=$(python3 -c 'import os, nvidia.cu13 as m; print(list(m.__path__)[0])' 2>/dev/null) || cuda=/usr/local/cuda
    step build-driver_costs g++ -O2 -std=c++17 -w "-I$cuda/include" -I/usr/local/cuda/include \
        "$here/peer/driver_costs.cpp" -o "$out/driver_costs" "$library" -lpthread
    if [ -x "$out/driver_costs" ]; then step driver_costs "$out/driver_costs"; fi
}

# Streams, events and graphs, likewise.
bench_flow() {
    if [ -f "$out/torch_bench.txt" ]; then
        step bench-flow kept "$out/bench_flow.txt" \
            "$bin/bench" streams graphs --cold --figures "$out/torch_bench.txt" --json
    else
        step bench-flow kept "$out/bench_flow.txt" "$bin/bench" streams graphs --json
    fi
}

# Our allocator, beside PyTorch's figures of the same run where there are some.
bench_alloc() {
    if [ -f "$out/torch_bench.txt" ]; then
        step bench-alloc kept "$out/bench_alloc.txt" "$bin/bench" alloc --figures "$out/torch_bench.txt" --json
    else
        step bench-alloc kept "$out/bench_alloc.txt" "$bin/bench" alloc --json
    fi
}

if [ -d "$here/peer" ] && [ "$driver" = real ]; then
    raw_driver
    peers
fi
bench_flow
bench_alloc

echo
cat "$out/summary.txt"
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
