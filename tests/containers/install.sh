#!/bin/bash
# Installs what the tests on real containers need (Debian 12, as root): Docker's engine, debootstrap, Apptainer, and the
# unprivileged user that runs Apptainer. Nothing is started.
#
# Debian 12 has no Apptainer. sid's package is taken as it is, with sid's C library beside it: its two programs are
# told to use that one, and nothing else of the system is touched.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
user=gpuatlas-test
if ! command -v dockerd > /dev/null || ! command -v debootstrap > /dev/null || ! command -v mksquashfs > /dev/null; then
    apt-get update -qq
    policy=/usr/sbin/policy-rc.d made=
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; made=1; }
    apt-get install -y -qq --no-install-recommends docker.io debootstrap squashfs-tools squashfuse fuse2fs uidmap patchelf \
        iptables util-linux
    [ -z "$made" ] || rm $policy
fi
id $user > /dev/null 2>&1 || useradd --create-home --shell /bin/bash $user
grep -q "^$user:" /etc/subuid || echo "$user:300000:65536" >> /etc/subuid
grep -q "^$user:" /etc/subgid || echo "$user:300000:65536" >> /etc/subgid
command -v apptainer > /dev/null && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,libraries}
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main' > "$work/sid.list"
sid=(-o Dir::Etc::sourcelist="$work/sid.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists"
     -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root)
apt-get "${sid[@]}" update -qq
(cd "$work/debs" && apt-get "${sid[@]}" download -qq apptainer libc6 libseccomp2 libsqlite3-0)
for package in "$work"/debs/lib*.deb; do dpkg-deb -x "$package" "$work/libraries"; done
dpkg-deb -x "$work"/debs/apptainer_*.deb /
libraries=/usr/lib/gpuatlas-sid
mkdir -p $libraries /var/lib/apptainer/mnt/session
find "$work/libraries" \( -name 'lib*.so*' -o -name 'ld-linux*' \) -type f -exec cp {} $libraries \;
find "$work/libraries" -name 'lib*.so*' -type l -exec cp -P {} $libraries \;
for program in /usr/bin/apptainer /usr/lib/x86_64-linux-gnu/apptainer/bin/starter; do
    patchelf --set-interpreter $libraries/ld-linux-x86-64.so.2 --force-rpath --set-rpath $libraries $program
done
# Root lacks CAP_SYS_RESOURCE in many sandboxes; `full`, the default, asks for every capability.
sed -i 's/^ *root default capabilities *=.*/root default capabilities = file/' /etc/apptainer/apptainer.conf
apptainer --version
