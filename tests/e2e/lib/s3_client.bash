# A test's own S3 world, on top of radosgw.bash: the server, keys in the environment, a bucket, rclone, helpers. Sourced.
#   s3_world_start             starts it, changes to $SCRATCH; everything ends with the script
#   helper PORT_FILE PROGRAM   starts a program that writes its port there, and sets $port
#   rclone                     with the remote r:
helpers=()
s3_world_stop() {
    [ ${#helpers[@]} -eq 0 ] || kill "${helpers[@]}" 2> "$server/kill"
    radosgw_stop
    wait
    rm -rf "$server"
}
helper() {
    local file=$1
    rm -f "$file"
    shift
    "$@" > "$file.out" 2> "$file.err" &
    helpers+=($!)
    wait_for "$1" test -s "$file"
    port=$(cat "$file")
}
rclone() { command rclone --config "$SCRATCH/rclone.conf" --quiet "$@"; }
s3_world_start() {
    server=$(mktemp -d /tmp/s3w.XXXXXX)
    trap s3_world_stop EXIT
    trap 'exit 1' INT TERM
    radosgw_start "$server" || skip "radosgw does not start: $(tail -n 2 "$server"/log/*.out)"
    unset "${!AWS_@}"
    export HOME=$SCRATCH/home AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=testsecret
    export AWS_ENDPOINT_URL=$s3_endpoint AWS_DEFAULT_REGION=us-east-1
    mkdir -p "$HOME"
    cd "$SCRATCH" || exit 1
    cat > rclone.conf << CONF
[r]
type = s3
provider = Ceph
access_key_id = TESTKEY
secret_access_key = testsecret
endpoint = $s3_endpoint
force_path_style = true
CONF
    rclone mkdir r:bucket || skip "rclone makes no bucket"
}
