# An installed library for the scripts that use it. Sourced after lib.bash: sets prefix, cc, flags, and the paths by
# which pkg-config and the dynamic linker find it.
cache() { sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"; }
prefix=$SCRATCH/prefix
cmake --install "$BUILD" --prefix "$prefix" > "$SCRATCH/log" 2>&1 || fail "install: $(tail -3 "$SCRATCH/log")"
export PKG_CONFIG_PATH LD_LIBRARY_PATH=$prefix/lib
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ashlar.pc)")
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
cc=$(cache CMAKE_C_COMPILER)
flags=()
[ -z "$(cache ASHLAR_SANITIZE)" ] || flags+=("-fsanitize=$(cache ASHLAR_SANITIZE)")
[ "$(cache ASHLAR_COVERAGE)" != ON ] || flags+=(--coverage)
