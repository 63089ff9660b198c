#!/bin/bash
# Starts Docker's daemon on a socket in B, then waits. Run as root in mount and PID namespaces of its own (rig.py does):
# the daemon and its containers end with this process, and all that they write lies in B.
set -euo pipefail
B=${B:?state folder} PYTHON=${PYTHON:?prefix of the Python in use}
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# Apptainer mounts images as an unprivileged user: a device file that such a user may open.
mknod "$B/fuse" c 10 229 && chmod 666 "$B/fuse" && mount --bind "$B/fuse" /dev/fuse
# An interpreter below /root is out of that user's reach: here it is not.
case $PYTHON in /root/*)
    mkdir -p "$B/root$PYTHON"
    mount --rbind "$PYTHON" "$B/root$PYTHON"
    mount --rbind "$B/root/root" /root
    chmod 755 "$B" "$B/root/root"
esac
# Control groups of its own, to leave none behind; no network: containers run without, builds use the host's.
dockerd --data-root "$B/docker" --exec-root "$B/exec" --pidfile "$B/docker.pid" -H "unix://$B/docker.sock" \
    --cgroup-parent=/gpuatlas-tests --bridge=none --iptables=false --ip6tables=false --ip-forward=false > "$B/dockerd.log" 2>&1 &
for _ in $(seq 300); do
    if DOCKER_HOST=unix://$B/docker.sock docker version > /dev/null 2>&1; then echo READY; exec sleep infinity; fi
    sleep 0.1
done
echo "FAILED $(tail -n 3 "$B/dockerd.log" | tr '\n' ' ')"
