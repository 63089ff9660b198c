#!/bin/sh
# Fills an image: the same steps for Docker and Apptainer. Needs Debian 12.
# usage: install.sh BUILD_DIR STACK NCU_VERSION PIP_OPTIONS
set -eu
build=$1 stack=$2 ncu=$3 pip_options=$4
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# gcc: torch.compile and Triton compile at run time.
apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev python3 python3-dev python3-venv

# --- Nsight Compute, from Debian 13's archive: the profiler, and the section files out of the package of the desktop
# program, whose own libraries Debian 12 lacks.
if [ -n "$ncu" ]; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie non-free" \
        > /etc/apt/sources.list.d/nsight-compute.list
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "nsight-compute-target=$ncu"
    (cd "$build" && apt-get download -qq "nsight-compute=$ncu")
    dpkg-deb --fsys-tarfile "$build"/nsight-compute_*.deb \
        | tar -x -C / ./usr/lib/x86_64-linux-gnu/nsight-compute/sections
    ln -s /usr/lib/nsight-compute/target/linux-desktop-glibc_2_11_3-x64/ncu /usr/local/bin/ncu
    rm /etc/apt/sources.list.d/nsight-compute.list
fi

# --- Python packages, exactly those of the lock
python3 -m venv /opt/venv
# shellcheck disable=SC2086  # several options
/opt/venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
    $pip_options -r "$build/locks/$stack.txt"

# --- gpuatlas itself comes from the checkout (the launcher mounts it): the image holds the stack alone
mkdir -p /opt/gpuatlas/lib
printf '#!/bin/sh\nexec /opt/venv/bin/python -m gpuatlas.cli "$@"\n' > /usr/local/bin/gpuatlas
# Not a link: Python finds its environment by the name that it is called by.
printf '#!/bin/sh\nexec /opt/venv/bin/python "$@"\n' > /usr/local/bin/python
chmod 755 /usr/local/bin/gpuatlas /usr/local/bin/python

# --- what is inside, for every environment record
{
    /opt/venv/bin/python -c 'import platform; print("python==" + platform.python_version())'
    /opt/venv/bin/pip list --disable-pip-version-check --format=freeze
    [ -z "$ncu" ] || echo "nsight-compute==$ncu"
} > /opt/gpuatlas/packages.txt

# --- an image that does not hold what stacks.yaml says fails here, not in a cell
/opt/venv/bin/python "$build/check.py" "$build/stacks.yaml" "$stack" "$ncu"
apt-get clean
rm -rf /var/lib/apt/lists/*
