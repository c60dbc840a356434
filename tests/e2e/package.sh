#!/usr/bin/env bash
# The library as packagers see it: what the shared one exports, CMake's find_package, linking statically, the tarball,
# and the packages that the Dockerfile names.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
. "$SOURCE/tests/e2e/install.bash" || exit 1
lib=$LD_LIBRARY_PATH

# ---- the shared library: one name for the linker, and the functions of the headers, no more and no less
if [ -e "$lib/libashlar.so" ]; then
    same "SONAME" "libashlar.so.0" "$(readelf -d "$lib/libashlar.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
    # Comments out; then each prototype is a line that begins in column one and has a name before its parenthesis.
    declared=$(sed -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//d' "$prefix"/include/ashlar/*.h |
        sed -n 's/^[a-z][a-z0-9_ *]*[ *]\(ash_[a-z_]*\)(.*/\1/p' | LC_ALL=C sort -u)
    exported=$(nm -D --defined-only "$lib/libashlar.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort)
    [ "$(wc -l <<< "$declared")" -gt 15 ] || fail "only these functions were found in the headers: $declared"
    same "exports" "$declared" "$exported"
    same "exported data" "" "$(nm -D --defined-only "$lib/libashlar.so" | awk '$2 ~ /[BDR]/ { print $3 }')"
    nm -D "$lib/libashlar.so" | grep -q 'ash_engine_open@@ASHLAR_0' || fail "symbols have no version"
fi

# ---- linked statically, by pkg-config
(cd "$SCRATCH" && "$cc" -std=c11 "${flags[@]}" "$SOURCE/examples/embed.c" $(pkg-config --cflags ashlar) "$lib/libashlar.a" \
    $(pkg-config --libs $(pkg-config --print-requires-private --print-requires ashlar)) -lm -ldl -pthread -o embed-static) || fail "linking statically"
LD_LIBRARY_PATH= try "$SCRATCH/embed-static" "$stories" "Once upon a time"
expect 0 "a program with the static library"
cp "$SCRATCH/out" "$SCRATCH/story"

# ---- find_package
mkdir "$SCRATCH/user"
cat > "$SCRATCH/user/CMakeLists.txt" << CMAKE
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(ashlar 0.1 REQUIRED)
add_executable(shared $SOURCE/examples/embed.c)
target_link_libraries(shared PRIVATE ashlar::ashlar)
add_executable(static $SOURCE/examples/embed.c)
target_link_libraries(static PRIVATE ashlar::static)
CMAKE
cmake -S "$SCRATCH/user" -B "$SCRATCH/user/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_FLAGS="${flags[*]}" > "$SCRATCH/log" 2>&1 && cmake --build "$SCRATCH/user/build" >> "$SCRATCH/log" 2>&1 ||
    fail "find_package: $(tail -5 "$SCRATCH/log")"
for program in shared static; do
    LD_LIBRARY_PATH= try "$SCRATCH/user/build/$program" "$stories" "Once upon a time"
    expect 0 "find_package, $program"
    cmp -s "$SCRATCH/out" "$SCRATCH/story" || fail "find_package, $program: another story"
done
[ ! -e "$lib/libashlar.so" ] || readelf -d "$SCRATCH/user/build/shared" | grep -q 'NEEDED.*libashlar.so.0' ||
    fail "ashlar::ashlar is not the shared library"
sed -i 's/ashlar 0.1/ashlar 9.9/' "$SCRATCH/user/CMakeLists.txt"
cmake -S "$SCRATCH/user" -B "$SCRATCH/user/build2" -DCMAKE_PREFIX_PATH="$prefix" > "$SCRATCH/log" 2>&1 &&
    fail "find_package took another version"

# ---- the tarball: every file of the commit, and it configures without git
if git -C "$SOURCE" rev-parse --git-dir > /dev/null 2>&1; then
    try "$SOURCE/scripts/dist.sh" "$SCRATCH/dist"
    expect 0 "dist"
    tarball=$(cat "$SCRATCH/out")
    tar -xzf "$tarball" -C "$SCRATCH/dist" || fail "tar"
    tree=${tarball%.tar.gz}
    same "files of the tarball" "$(git -C "$SOURCE" ls-tree -r --name-only HEAD | wc -l)" "$(find "$tree" ! -type d | wc -l)"
    cmake -S "$tree" -B "$SCRATCH/dist/build" -G Ninja -DNVCC=OFF > "$SCRATCH/log" 2>&1 || fail "the tarball: $(tail -5 "$SCRATCH/log")"
    cmake --build "$SCRATCH/dist/build" --target CMakeFiles/ashlar_lib.dir/src/base/err.c.o > "$SCRATCH/log" 2>&1 ||
        fail "the tarball does not build: $(tail -5 "$SCRATCH/log")"
fi

# ---- the Dockerfile: packages that there are, and every one that the program is linked with
if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release 2> /dev/null && apt-cache show libjansson4 > /dev/null 2>&1; then
    packages=$(sed -n '/apt-get install/,/rm -rf/p' "$SOURCE/Dockerfile" | grep -oE '\b(lib[a-z0-9-]+[0-9]|zlib1g)\b' | LC_ALL=C sort -u)
    same "packages of the Dockerfile" "$packages" "$(apt-cache show $packages 2> /dev/null | sed -n 's/^Package: //p' | LC_ALL=C sort -u)"
    readelf -d "$ASHLAR" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | while read -r needed; do
        owner=$(dpkg -S "*/$needed" 2> /dev/null | grep -v -e -cross -e /lib32/ -e /libx32/ | head -1 | cut -d: -f1)
        case " $(echo $packages) libc6 libasan8 libubsan1 libgcc-s1 " in *" $owner "*) ;; *) echo "$needed of $owner" ;; esac
    done > "$SCRATCH/missing"
    [ ! -s "$SCRATCH/missing" ] || fail "the Dockerfile lacks $(paste -sd, "$SCRATCH/missing")"
fi
finish
