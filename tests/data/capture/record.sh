#!/bin/sh
# Records what the stand-in for ncu is held to. On a machine with a GPU and Nsight Compute: sh record.sh FOLDER
set -u
out=${1:?folder}
mkdir -p "$out"
ncu --help >"$out/ncu_help.txt" 2>&1
ncu --version >"$out/ncu_version.txt" 2>&1
ncu --list-chips >"$out/ncu_chips.txt" 2>&1
ncu --list-sections >"$out/ncu_sections.txt" 2>&1
nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.free,clocks.sm,clocks.max.sm,mig.mode.current,clocks_event_reasons.active \
    --format=csv,noheader,nounits >"$out/nvidia_smi.txt" 2>&1
grep RmProfilingAdminOnly /proc/driver/nvidia/params >"$out/params.txt" 2>&1
# What ncu prints for an unknown option, for a filter that matches nothing, for an unknown section and metric, and
# how --launch-skip and --kernel-id count inside a profiler range.
program='
import torch
x = torch.ones(1 << 20, device="cuda")
for _ in range(3): x = x * 2
torch.cuda.synchronize(); torch.cuda.profiler.start()
for n in range(1, 7): torch.ones(n << 20, device="cuda").mul_(2).add_(1)
torch.cuda.synchronize(); torch.cuda.profiler.stop()
x = x * 2; torch.cuda.synchronize(); print("program ended", flush=True)'
run() {
    name=$1
    shift
    { echo "\$ ncu $*"; ncu --profile-from-start off --clock-control none "$@" --force-overwrite --export "/tmp/$name.ncu-rep" \
        python3 -c "$program" 2>&1; echo "exit status $?"; } >"$out/said_$name.txt"
}
run option --no-such-option
run nothing --metrics gpu__time_duration.sum --kernel-name regex:^nothing$
run section --section NoSuchSection
run metric --metrics no__such_metric.sum
run skip --metrics gpu__time_duration.sum --launch-skip 2 --launch-count 5
run configs --metrics gpu__time_duration.sum --filter-mode per-launch-config --launch-count 1
run name --metrics gpu__time_duration.sum --filter-mode per-launch-config --launch-count 1 \
    --kernel-name-base function --kernel-name 'regex:^(vectorized_elementwise_kernel)$'
run kernel_id --metrics gpu__time_duration.sum --kernel-id '::regex:^vectorized_elementwise_kernel$:^(2|5)$'
run kernel_id_all --metrics gpu__time_duration.sum --kernel-id ':::^(2|5)$'
for name in skip configs name kernel_id kernel_id_all; do
    ncu --import "/tmp/$name.ncu-rep" --page raw --csv --metrics gpu__time_duration.sum >>"$out/said_$name.txt" 2>&1
done
ls -l "$out"
