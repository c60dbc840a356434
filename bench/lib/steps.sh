# Sourced by bench/GROUP.sh: what the log of a training run says of its steps.

# read_steps LOG: of the steps after the first, the median of tokens per second to $rates and the share of exposed communication in
# percent to $exposed.
read_steps() {
    rates=$(sed -n '2,$p' "$1" | grep -oE '"tokens_per_s":[0-9.e+]+' | cut -d: -f2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    exposed=$(sed -n '2,$p' "$1" | sed -E 's/.*"compute_s":([^,]*),"comm_s":([^,]*),"data_s":([^,]*),"idle_s":([^,]*),.*/\1 \2 \3 \4/' |
        awk '{ c += $2; all += $1 + $2 + $3 + $4 } END { print 100 * c / all }')
}

# mesh_words LAYOUT RANKS: the settings of dp, tp or zeroN over RANKS ranks.
mesh_words() {
    case $1 in
    zero*) echo "mesh.fsdp=$2 mesh.zero=${1#zero}" ;;
    *) echo "mesh.$1=$2" ;;
    esac
}
