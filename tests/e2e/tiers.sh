#!/usr/bin/env bash
# Tiers of this machine beyond a plain folder: several folders as one, shared folders, Lustre through its `lfs` (a stand-in: there
# is no Lustre here), and the suite of all tiers on a FUSE mount, where FUSE is allowed.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cd "$SCRATCH" || exit 1
head -c 30000000 /dev/urandom > big
echo small > small

# ---- several folders -----------------------------------------------------------------------------------------------------
stripe=stripe:$SCRATCH/a,$SCRATCH/b,$SCRATCH/c
leak_free "$ASHLAR" store put big "$stripe::runs/big"
expect 0 "put into a stripe"
leak_free "$ASHLAR" store get "$stripe::runs/big" back
expect 0 "get from a stripe"
cmp -s big back || fail "other bytes from a stripe"
for folder in a b c; do
    [ "$(du -sk $folder | cut -f1)" -ge 8000 ] || fail "$folder has no third of the bytes: $(du -sk a b c)"
done
try "$ASHLAR" store ls "$stripe" --recursive
same "ls" "30000000 runs/big" "$(awk '{ print $1, $NF }' out)"
rm -r b && touch b
try "$ASHLAR" store get "$stripe::runs/big" back2
expect_error 1 "a folder that is gone" "$SCRATCH/b"
[ ! -e back2 ] || fail "a part of an object became a file"
try "$ASHLAR" store put big "$stripe::runs/new"
expect 0 "put into what is left: $(cat err)"
grep -q "warning: $SCRATCH/b is left out" err || fail "nobody says that a folder is left out: $(cat err)"
try "$ASHLAR" store get "$stripe::runs/new" back3
cmp -s big back3 || fail "other bytes from what is left"
try "$ASHLAR" store put big "stripe:,"
expect_error 1 "no folder" "stripe"

# ---- Lustre, as its lfs tells it -----------------------------------------------------------------------------------------
mkdir -p bin lustre
cat > bin/lfs << 'STUB'
#!/bin/bash
echo "$@" >> "$LFS_LOG"
case $1 in
getstripe) echo "stripe_count:  1 stripe_size:   1048576 pattern: 0 stripe_offset: -1" ;;
setstripe) : > "${!#}" ;;
hsm_state) case $2 in *old*) echo "$2: (0x0000000d) released exists archived, archive_id:1" ;; *) echo "$2: (0x00000000)" ;; esac ;;
esac
STUB
chmod +x bin/lfs
export LFS_LOG=$SCRATCH/lfs.log
PATH=$SCRATCH/bin:$PATH try "$ASHLAR" store put big "shared:$SCRATCH/lustre/big"
expect 0 "put on Lustre"
cmp -s big lustre/big || fail "other bytes on Lustre"
grep -q '^setstripe -S 4M -c 1 ' lfs.log || fail "no stripes were asked for: $(cat lfs.log)"
cp small lustre/old
PATH=$SCRATCH/bin:$PATH try "$ASHLAR" store stat "shared:$SCRATCH/lustre/old"
grep -q 'released' out || fail "nobody says that it is released: $(cat out)"
PATH=$SCRATCH/bin:$PATH try "$ASHLAR" store stat "shared:$SCRATCH/lustre/big"
grep -q 'released' out && fail "it is not released: $(cat out)"
printf '#!/bin/bash\nsleep 60\n' > bin/lfs # a server that is away
began=$SECONDS
PATH=$SCRATCH/bin:$PATH try "$ASHLAR" store put small "shared:$SCRATCH/lustre/small"
expect 0 "an lfs that hangs"
[ $((SECONDS - began)) -lt 25 ] || fail "an lfs that hangs stopped it for $((SECONDS - began)) s"

# ---- FUSE ----------------------------------------------------------------------------------------------------------------
mkdir -p under mount
if ! command -v bindfs > out || ! bindfs under mount 2> fuse.err; then
    echo "not tested on a FUSE mount: $(head -n 1 fuse.err 2> out || echo "bindfs is not here")"
    finish
fi
trap 'fusermount3 -u "$SCRATCH/mount" 2> "$SCRATCH/fuse.err" || umount "$SCRATCH/mount"' EXIT
if [ -x "$BUILD/tests/test_tier" ]; then
    try env TIER_TEST_FOLDER="$SCRATCH/mount" "$BUILD/tests/test_tier"
    expect 0 "the suite of all tiers on a FUSE mount: $(grep -A3 'FAILED\|ERROR' err out | head -n 20)"
fi
try "$ASHLAR" store put big "shared:$SCRATCH/mount/big"
expect 0 "put on a FUSE mount"
cmp -s big under/big || fail "other bytes on a FUSE mount"
finish
