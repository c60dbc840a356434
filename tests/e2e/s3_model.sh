#!/usr/bin/env bash
# Models in a bucket: weights stream by ranges into packing while the first pass runs, with the text of local files; the cache may
# be smaller than the model; a second start asks the server for none of them; ranks share what is read. Through a proxy that fails,
# counts bytes and goes away. Skips where Debian's packages are not there.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone python3; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"
s3_world_start
