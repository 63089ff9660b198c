#!/bin/sh
# Installs what the tests on real Slurm clusters need (Debian 12, as root). Nothing is started.
set -eu
export DEBIAN_FRONTEND=noninteractive
if ! command -v slurmctld >/dev/null || ! command -v mariadbd >/dev/null || ! command -v tmux >/dev/null; then
    apt-get update -qq
    # No daemon may start by itself: the tests start their own.
    policy=/usr/sbin/policy-rc.d
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; made=1; }
    apt-get install -y -qq --no-install-recommends \
        munge slurmctld slurmd slurmdbd slurm-client mariadb-server util-linux procps iproute2 tmux
    [ -z "${made:-}" ] || rm $policy
fi
