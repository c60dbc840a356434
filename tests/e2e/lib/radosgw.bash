# A real S3 server for a test: one Ceph monitor, one in-memory store and radosgw on loopback. Sourced.
#   radosgw_start FOLDER   sets s3_endpoint; the keys are TESTKEY and testsecret. FOLDER is short: names of sockets are.
#   radosgw_stop           ends all of it; what it held is lost
. "$SOURCE/tests/e2e/lib/ports.bash" || exit 1
radosgw_tools=(ceph-mon ceph-osd ceph ceph-authtool monmaptool radosgw radosgw-admin curl)
radosgw_daemons=()

radosgw_daemon() { # NAME PROGRAM...
    local name=$1
    shift
    "$@" > "$radosgw_folder/log/$name.out" 2>&1 < /dev/null &
    radosgw_daemons+=($!)
}
radosgw_keyrings() {
    ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' &&
        ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' &&
        ceph-authtool keyring --gen-key -n client.rgw --cap mon 'allow rw' --cap osd 'allow rwx' &&
        ceph-authtool --create-keyring osd.keyring -n osd.0 --add-key "$1" &&
        monmaptool --create --fsid "$2" --addv a "$3" monmap
}
radosgw_conf() { # FSID ADDRESS: without the short paxos intervals the start takes 12 s
    cat << CONF
[global]
fsid = $1
mon host = $2
public network = 127.0.0.0/8
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
paxos propose interval = 0.02
paxos min wait = 0.01
osd heartbeat grace = 60
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = ${radosgw_memory:-1G}
run dir = $radosgw_folder/run
log file = $radosgw_folder/log/\$name.log
admin socket = $radosgw_folder/run/\$name.asok
keyring = $radosgw_folder/keyring
[mon.a]
mon data = $radosgw_folder/mon
mon initial members = a
[osd.0]
osd data = $radosgw_folder/osd
keyring = $radosgw_folder/osd.keyring
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:$radosgw_port
rgw data = $radosgw_folder/rgw
rgw dns name = localhost
CONF
}
radosgw_start() {
    radosgw_folder=$1
    mkdir -p "$radosgw_folder"/{mon,osd,log,run,rgw}
    local port fsid osd key address try
    free_ports || return 1 # the server's and the monitor's two
    radosgw_port=$port
    fsid=$(cat /proc/sys/kernel/random/uuid) osd=$(cat /proc/sys/kernel/random/uuid) key=$(ceph-authtool --gen-print-key)
    address="[v2:127.0.0.1:$((radosgw_port + 1)),v1:127.0.0.1:$((radosgw_port + 2))]"
    radosgw_conf "$fsid" "$address" > "$radosgw_folder/ceph.conf"
    local conf=$radosgw_folder/ceph.conf
    (cd "$radosgw_folder" && radosgw_keyrings "$key" "$fsid" "$address") > "$radosgw_folder/log/keys.out" 2>&1 || return 1
    ceph-mon -c "$conf" -i a --mkfs --monmap "$radosgw_folder/monmap" --keyring "$radosgw_folder/keyring" || return 1
    radosgw_daemon mon ceph-mon -c "$conf" -i a -f
    echo "{\"cephx_secret\": \"$key\"}" > "$radosgw_folder/osd.json"
    timeout 120 ceph -c "$conf" --connect-timeout 100 osd new "$osd" -i "$radosgw_folder/osd.json" > "$radosgw_folder/log/new.out" 2>&1 || return 1
    ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$osd" > "$radosgw_folder/log/mkfs.out" 2>&1 || return 1
    radosgw_daemon osd ceph-osd -c "$conf" -i 0 -f
    radosgw_daemon rgw radosgw -c "$conf" -n client.rgw -f
    for try in $(seq 2400); do
        ! curl -s -m 10 -o "$radosgw_folder/log/answer" "http://127.0.0.1:$radosgw_port/" || break
        sleep 0.05
    done
    timeout 200 radosgw-admin -c "$conf" -n client.rgw user create --uid=t --display-name=t --access-key=TESTKEY \
        --secret-key=testsecret > "$radosgw_folder/log/user.out" 2>&1 || return 1
    s3_endpoint=http://127.0.0.1:$radosgw_port
}
# radosgw may ignore SIGTERM while its monitor goes away, and holds nothing worth an orderly end.
radosgw_stop() {
    [ ${#radosgw_daemons[@]} -eq 0 ] || kill -9 "${radosgw_daemons[@]}" 2> "$radosgw_folder/log/kill"
    [ ${#radosgw_daemons[@]} -eq 0 ] || wait "${radosgw_daemons[@]}" 2> "$radosgw_folder/log/kill"
    radosgw_daemons=()
}
