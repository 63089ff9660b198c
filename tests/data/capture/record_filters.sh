#!/bin/sh
# Records how Nsight Compute's filters group and count launches. On a GPU machine: sh record_filters.sh FOLDER
set -u
out=${1:?folder}
mkdir -p "$out"
program='
import torch, time
x = torch.ones(1 << 20, device="cuda"); torch.softmax(x.view(1024, 1024), 1)
for _ in range(3): x = x * 2
torch.cuda.synchronize(); torch.cuda.profiler.start(); began = time.monotonic()
for turn in range(2):
    for n in (1, 2):
        y = torch.ones(n << 20, device="cuda"); y.mul_(2); y.add_(1)
        torch.softmax(y.view(-1, 1024), 1)
torch.cuda.synchronize(); torch.cuda.profiler.stop(); print("step", round(time.monotonic() - began, 2), flush=True)'
run() {
    name=$1
    shift
    { echo "\$ ncu $*"; ncu --profile-from-start off --clock-control none --metrics gpu__time_duration.sum "$@" \
        --force-overwrite --export "/tmp/$name.ncu-rep" python3 -c "$program" 2>&1; echo "exit status $?"
        ncu --import "/tmp/$name.ncu-rep" --page raw --csv --metrics gpu__time_duration.sum 2>&1 | cut -d, -f1,5-; } >"$out/filter_$name.txt"
}
once="--filter-mode per-launch-config --launch-count 1"
run every
run function $once --kernel-name-base function
run demangled $once --kernel-name-base demangled
run mangled $once --kernel-name-base mangled
run mangled_named $once --kernel-name-base mangled --kernel-name 'regex:(29vectorized_elementwise_kernel)'
run demangled_named $once --kernel-name-base demangled --kernel-name 'regex:(vectorized_elementwise_kernel)<'
run second --filter-mode per-launch-config --launch-skip 1 --launch-count 1
run ids --kernel-id '::regex:^vectorized_elementwise_kernel$:^(2|5)$' --kernel-id '::regex:SoftMax:^3$'
run id_all --kernel-id ':::^2$'
run id_mangled --kernel-name-base mangled --kernel-id ':::^2$'
run id_demangled --kernel-name-base demangled --kernel-id ':::^2$'
run id_once $once --kernel-id '::regex:^vectorized_elementwise_kernel$:^(2|5|8)$'
run id_count --kernel-id '::regex:^vectorized_elementwise_kernel$:^(2|5|8)$' --launch-count 2
grep -H . "$out"/filter_*.txt | grep -v PROF | cut -c1-260
