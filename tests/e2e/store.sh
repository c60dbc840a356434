#!/usr/bin/env bash
# ashlar store on folders, and what users do wrong. A real S3 server is in s3_world.sh.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
export HOME=$SCRATCH/home AWS_EC2_METADATA_DISABLED=true
mkdir -p "$HOME"
unset "${!AWS_@}"
export AWS_EC2_METADATA_DISABLED=true
cd "$SCRATCH" || exit 1
mkdir -p from/sub
head -c 100000 /dev/urandom > from/one
echo two > from/sub/two

leak_free "$ASHLAR" store put from/one to/
expect 0 "put a file"
cmp -s from/one to/one || fail "put: the file differs"
try "$ASHLAR" store get from all --recursive
expect 0 "get a folder"
diff -r from all || fail "get --recursive: the folders differ"
try "$ASHLAR" store ls all
expect 0 "ls"
same "ls" "one sub/" "$(awk '{ print $NF }' out | xargs)"
try "$ASHLAR" store ls all --recursive --json
same "ls --json" "2" "$(grep -c '"key"' out)"
try "$ASHLAR" store stat all/one --json
grep -q '"size": 100000' out || fail "stat: $(cat out)"
try "$ASHLAR" store verify all --recursive
expect 0 "verify"
grep -q '^readable *sub/two' out || fail "verify: $(cat out)"
touch -d '2 days ago' all/.ashlar-object-1-1
try "$ASHLAR" store gc all
grep -q 'removed 1 ' out || fail "gc: $(cat out)"
try "$ASHLAR" store rm all/sub/two
expect 0 "rm"
try "$ASHLAR" store rm all --recursive
same "rm --recursive leaves" "" "$(find all -type f)"

# Mistakes.
try timeout 20 "$ASHLAR" store rm / --recursive
expect_error 1 "rm of all disks" "root of all disks"
try "$ASHLAR" store rm s3://bucket --recursive
expect_error 1 "rm of a bucket" "--whole"
try "$ASHLAR" store rm 's3://bucket/*' --recursive
expect_error 1 "rm of all in a bucket" "--whole"
try "$ASHLAR" store rm all/sub/two
expect_error 1 "rm of nothing" "there is no such file"
try "$ASHLAR" store ls nowhere
expect_error 1 "ls of nothing" "nothing at nowhere"
try "$ASHLAR" store put from/one
expect_error 2 "one word" "PATH URL"
try "$ASHLAR" store put from to
expect_error 1 "a folder" "--recursive"
try "$ASHLAR" store stat s3://
expect_error 1 "no bucket" "bucket"
if "$ASHLAR" version | grep -q 'libcurl [0-9]'; then
    try "$ASHLAR" store stat s3://bucket
    expect_error 1 "a bucket" "name an object"
    try "$ASHLAR" store ls s3://bucket
    expect_error 1 "no keys" "AWS_ACCESS_KEY_ID"
    AWS_ACCESS_KEY_ID=a try "$ASHLAR" store ls s3://bucket
    expect_error 1 "half of the keys" "AWS_SECRET_ACCESS_KEY"
    AWS_PROFILE=nobody try "$ASHLAR" store ls s3://bucket
    expect_error 1 "no such profile" "nobody"
    export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b
    try "$ASHLAR" store ls s3://bucket s3.endpoint=localhost:1
    expect_error 1 "no scheme" "http://"
    try timeout 120 "$ASHLAR" store ls s3://bucket s3.endpoint=http://127.0.0.1:1 s3.retry_s=0
    expect_error 1 "nobody listens" "cannot connect to 127.0.0.1:1"
    try "$ASHLAR" store ls s3://Bu.cket s3.addressing=host
    expect_error 1 "not a host" "s3.addressing=path"
    try "$ASHLAR" store ls s3://bucket s3.ca_file=none.pem
    expect_error 1 "no such authorities" "none.pem"
fi
finish
