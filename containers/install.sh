#!/bin/sh
# Fills an image: the same steps for Docker and Apptainer. Needs Debian 12.
# usage: install.sh BUILD_DIR STACK NCU_PACKAGE PIP_OPTIONS
set -eu
build=$1 stack=$2 ncu=$3 pip_options=$4
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# gcc: torch.compile and Triton compile at run time.
apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev python3 python3-dev python3-venv

# --- Nsight Compute, from NVIDIA's repository for Debian 12
if [ -n "$ncu" ]; then
    apt-get install -y -qq --no-install-recommends curl
    repository=https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64
    curl -fsSL -o /tmp/keyring.deb $repository/cuda-keyring_1.1-1_all.deb
    dpkg -i /tmp/keyring.deb
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$ncu"
    ln -s /opt/nvidia/nsight-compute/*/ncu /usr/local/bin/ncu
fi

# --- Python packages, exactly those of the lock
python3 -m venv /opt/venv
# shellcheck disable=SC2086  # several options
/opt/venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --require-hashes \
    $pip_options -r "$build/$stack.txt"

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
    [ -z "$ncu" ] || dpkg-query --show --showformat='${Package}==${Version}\n' "$ncu"
} > /opt/gpuatlas/packages.txt
rm -rf /var/lib/apt/lists/* /tmp/keyring.deb
