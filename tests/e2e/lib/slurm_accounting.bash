# Accounting of the Slurm of slurm.bash: its database daemon on a MariaDB of its own, with this user in slurm_accounts. Sourced after it; skips the test where they are not to be had. All of it
# ends with the script. $slurmdbd is its process.
slurm_needs_accounting() {
    local tool
    for tool in slurmdbd mariadbd sacct sacctmgr; do
        command -v $tool > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs it)"
    done
}
# Called by slurm_start, before the controller.
slurm_accounting_start() {
    local db=$cluster/db scripts= user
    user=$(id -un)
    mkdir -p "$db"
    for i in /usr/share/mysql /usr/share/mariadb; do [ ! -e $i/mysql_system_tables.sql ] || scripts=$i; done
    # Its own tables: slurmdbd keeps procedures in them.
    { printf 'create database mysql;\nuse mysql;\n' && cat "$scripts"/mysql_system_tables{,_data}.sql; } |
        mariadbd --no-defaults --bootstrap --datadir="$db" --user="$user" > "$cluster/db.install" 2>&1 ||
        skip "MariaDB makes no database: $(tail -n 2 "$cluster/db.install")"
    slurm_daemon mariadbd mariadbd --no-defaults --datadir="$db" --user="$user" --socket="$cluster/db.sock" --bind-address=127.0.0.1 --port=$((port + 19)) \
        --pid-file="$cluster/db.pid" --skip-log-bin --innodb-flush-log-at-trx-commit=0 --skip-grant-tables --skip-name-resolve
    for i in $(seq 6000); do [ ! -S "$cluster/db.sock" ] || break; sleep 0.02; done
    cat > "$cluster/slurmdbd.conf" << CONF
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 18))
SlurmUser=$user
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 19))
StorageUser=root
StorageLoc=slurm
LogFile=$cluster/slurmdbd.log
PidFile=$cluster/slurmdbd.pid
CONF
    chmod 600 "$cluster/slurmdbd.conf"
    cat >> "$SLURM_CONF" << CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 18))
AccountingStoragePass=$cluster/munge.sock
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations
JobAcctGatherType=jobacct_gather/none
CONF
    slurm_daemon slurmdbd slurmdbd -D
    slurmdbd=${slurm_daemons[-1]}
    for i in $(seq 60); do ! sacctmgr -in add cluster ashlar > "$cluster/sacctmgr" 2>&1 || break; sleep 0.1; done
    for i in ${slurm_accounts:-}; do # a controller that is told of one while it starts may die of it
        sacctmgr -i add account "$i" >> "$cluster/sacctmgr" 2>&1 && sacctmgr -i add user "$user" account="$i" >> "$cluster/sacctmgr" 2>&1
    done
    grep -q ashlar "$cluster/sacctmgr" || skip "slurmdbd does not start: $(tail -n 3 "$cluster"/slurmdbd.{out,log} "$cluster/sacctmgr")"
}
