#!/bin/bash
# Brings up munge, MariaDB, slurmdbd and three clusters (slurmctld + slurmd each) on loopback, then waits.
# Run as root in mount, network and PID namespaces of its own (rig.py does), with B=state folder: all daemons end with this
# process, and all that they write lies in B or on file systems that end with the namespace.
set -euo pipefail
B=${B:?state folder} H=$(hostname -s)
PATH=/usr/sbin:/usr/bin:/sbin:/bin
for folder in /etc/slurm /etc/munge /run /var/lib/munge /var/log/munge; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
mkdir -p /run/munge /run/mysqld /run/lock
chmod 755 "$B"
ip link set lo up
# Slurm's look-ups (AI_ADDRCONFIG) want an address other than the loopback's.
ip link add atlas0 type veth peer name atlas1
ip addr add 10.213.77.1/24 dev atlas0
ip link set atlas0 up
ip link set atlas1 up
fail() { echo "FAILED $*: $(grep -hE 'fatal|already in use' "$B"/*.log "$B"/*/*.log | tail -3 | tr '\n' ' ')"; exit 1; }
wait_for() { local n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 600 ] || fail "waiting for: $*"; sleep 0.1; done; }

# --- munge
head -c 1024 /dev/urandom > /etc/munge/munge.key
chown -R munge:munge /etc/munge /run/munge /var/lib/munge /var/log/munge
chmod 700 /etc/munge /var/lib/munge /var/log/munge; chmod 400 /etc/munge/munge.key; chmod 755 /run/munge
runuser -u munge -- munged --num-threads=4
wait_for munge -n

# --- MariaDB on a Unix socket
mkdir -p "$B/mysql"; chown mysql:mysql "$B/mysql" /run/mysqld
mariadb-install-db --user=mysql --datadir="$B/mysql" --auth-root-authentication-method=socket --skip-test-db > "$B/mysql-install.log" 2>&1
mariadbd --no-defaults --user=mysql --datadir="$B/mysql" --skip-networking --socket=/run/mysqld/mysqld.sock \
    --pid-file="$B/mysql/mysqld.pid" --innodb-buffer-pool-size=128M --innodb-log-file-size=64M \
    --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 --log-error="$B/mariadb.log" >/dev/null 2>&1 &
sql() { mariadb -S /run/mysqld/mysqld.sock -e "$1"; }
wait_for sql 'select 1'
sql "create database slurm_acct_db; create user 'slurm'@'localhost' identified by 'slurm'; grant all on slurm_acct_db.* to 'slurm'@'localhost';"

# --- accounting
cat > /etc/slurm/slurmdbd.conf <<C
AuthType=auth/munge
DbdHost=$H
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile=$B/slurmdbd.log
PidFile=$B/slurmdbd.pid
CommitDelay=0
C
chmod 600 /etc/slurm/slurmdbd.conf
slurmdbd

# A job is COMPLETING for as long as its file is there.
cat > "$B/epilog" <<C
#!/bin/sh
while [ -e "$B/hold-\$SLURM_JOB_ID" ]; do sleep 0.2; done
C
chmod 755 "$B/epilog"

# --- clusters
# Ports lie below those that the kernel gives to outgoing connections (32768 and up): one of those may hold a port already.
cluster() { # name port first-job gpu node cpus memory accounting partitions...
    local c=$1 p=$2 first=$3 gpu=$4 node=$5 cpus=$6 memory=$7 accounting=$8; shift 8
    local d=$B/$c; mkdir -p "$d"/{etc,state,spool,dev}
    # Slurm wants a device file a GPU.
    for i in 0 1 2 3; do mknod "$d/dev/nvidia$i" c 1 3; done
    cat > "$d/etc/slurm.conf" <<C
ClusterName=$c
SlurmctldHost=$H(127.0.0.1)
SlurmctldPort=$p
SlurmdPort=$((p + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool
SlurmctldPidFile=$d/slurmctld.pid
SlurmdPidFile=$d/slurmd.pid
SlurmctldLogFile=$d/slurmctld.log
SlurmdLogFile=$d/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
# Two cores stand for the sites' forty.
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
# Ids that differ over clusters, as at sites that share a database.
FirstJobId=$first
MaxArraySize=1001
MinJobAge=300
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=15
KillWait=5
WaitTime=0
JobRequeue=1
Epilog=$B/epilog
DefMemPerCPU=4000
SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5,requeue_setup_env_fail
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$node NodeHostname=$H NodeAddr=127.0.0.1 Port=$((p + 1)) CPUs=$cpus RealMemory=$memory Gres=gpu:$gpu:4 Feature=$gpu State=UNKNOWN
C
    if [ "$accounting" = accounting ]; then
        cat >> "$d/etc/slurm.conf" <<C
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:$gpu
C
    fi
    printf '%s\n' "$@" >> "$d/etc/slurm.conf"
    printf 'AutoDetect=off\nNodeName=%s Name=gpu Type=%s File=%s\n' "$node" "$gpu" "$d/dev/nvidia[0-3]" > "$d/etc/gres.conf"
}
cluster expanse 17817 1000001 v100 exp-1-57 40 370000 accounting \
    'PartitionName=gpu         Nodes=ALL MaxTime=48:00:00 PriorityTier=10 PreemptMode=OFF State=UP' \
    'PartitionName=gpu-shared  Nodes=ALL MaxTime=48:00:00 PriorityTier=10 PreemptMode=OFF Default=YES State=UP' \
    'PartitionName=gpu-debug   Nodes=ALL MaxTime=00:30:00 PriorityTier=20 PreemptMode=OFF State=UP' \
    'PartitionName=gpu-preempt Nodes=ALL MaxTime=7-0 PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP'
cluster jetstream2 18817 2000001 a100 js2-g01 32 120000 accounting \
    'PartitionName=gpu         Nodes=ALL MaxTime=2-0 PriorityTier=10 PreemptMode=OFF Default=YES State=UP' \
    'PartitionName=gpu-preempt Nodes=ALL MaxTime=2-0 PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP'
cluster stampede3 19817 3000001 h100 c561-001 96 1000000 accounting 'PartitionName=h100 Nodes=ALL MaxTime=48:00:00 Default=YES State=UP'
# A virtual cluster as they come: no accounting.
cluster virtual 20817 4000001 a100 vc-g01 32 120000 none 'PartitionName=gpu Nodes=ALL MaxTime=2-0 Default=YES State=UP'
# Two that number their jobs alike, as clusters do that were set up apart and joined later.
for c in east:21817 west:22817; do
    cluster ${c%:*} ${c#*:} 5000001 a100 ${c%:*}-g01 32 120000 accounting 'PartitionName=gpu Nodes=ALL MaxTime=2-0 Default=YES State=UP'
done
cp "$B"/expanse/etc/* /etc/slurm/     # the login node is expanse's
wait_for sacctmgr -n list cluster
shared=expanse,jetstream2,stampede3,east,west
for c in ${shared//,/ }; do sacctmgr -i add cluster $c > /dev/null; done
sacctmgr -i add account abc123 cluster=$shared Description=t Organization=t > /dev/null
sacctmgr -i add user root account=abc123 cluster=$shared > /dev/null
for c in ${shared//,/ } virtual; do
    SLURM_CONF=$B/$c/etc/slurm.conf slurmctld
    # Each node sees its own cluster's /etc/slurm: steps find their controller there.
    unshare --mount --propagation private bash -c "mount --bind $B/$c/etc /etc/slurm && exec slurmd"
done
idle() { [ "$(SLURM_CONF=$B/$1/etc/slurm.conf sinfo -h -o %T | tail -1)" = idle ]; }
for c in ${shared//,/ } virtual; do wait_for idle $c; done
# Controllers tell the database where they listen; until then -M does not find them.
found() { for c in ${shared//,/ }; do sinfo -M $c -h || return 1; done; }
wait_for found
echo READY
exec sleep infinity
