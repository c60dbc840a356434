# Ports for servers of tests. Sourced.
# free_ports: $port is the first of 20 that no other test has while this one runs, and nobody listens on. They are below those that
# `ashlar launch` takes. A Slurm job meets at 20000 + its number: numbers from $port - 10000 on belong to this test, too.
free_ports() {
    local folder=${TMPDIR:-/tmp}/ashlar-test-ports.$UID try i taken
    mkdir -p "$folder"
    for try in $(seq 1000); do
        port=$((10000 + RANDOM % 100 * 20))
        exec {port_lock}> "$folder/$port"
        taken=()
        for i in $(seq 0 19); do printf -v "taken[$i]" -- '-e:%04X 00000000' $((port + i)); done
        if flock -n "$port_lock" && ! grep -qsF "${taken[@]}" /proc/net/tcp /proc/net/tcp6; then return 0; fi
        exec {port_lock}>&-
    done
    echo "no free ports" >&2
    return 1
}
