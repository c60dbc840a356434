#!/usr/bin/env bash
# The floor rule: a file may include headers of its own folder and of the floors below it, never above; and folders do not
# include each other in a circle. Each floor has a README.md: the files and structs that it names exist, and it says who may include the
# floor. Instructions of a GPU and its dynamic shared memory are named in compute/cuda/ptx only: tests/emulate
# has that folder a second time, for the host. Prints each violation.
set -u
cd "$1/src" || exit 1
if grep -nE '\basm\b|extern __shared__|__cvta_' $(find compute/cuda -name '*.cu' -o -name '*.cuh' | grep -v '^compute/cuda/ptx/'); then
    echo "the lines above name instructions or dynamic shared memory of a GPU: that is for compute/cuda/ptx"
    exit 1
fi
# Names in a floor's page that are not there: structs, and paths from the floor or from the root.
missing=$(for page in */README.md; do
    grep -oE '`[^`]+`' "$page" | tr -d '`' | sort -u | while read -r name; do
        case $name in
            'struct '*) grep -rqE --include='*.[ch]' "^$name( \\{|;)" . ../include || echo "src/$page: there is no $name" ;;
            */* | *.c | *.h | *.js) compgen -G "${page%/*}/$name" > /dev/null || compgen -G "../$name" > /dev/null || echo "src/$page: there is no $name" ;;
        esac
    done
done)
[ -z "$missing" ] || { echo "$missing"; exit 1; }
find . ../tools -name '*.[ch]' -o -name '*.cu' | sed 's|^\./||' | sort | xargs awk '
    BEGIN { # folder -> folders it may include
        may["base"] = ""
        may["record"] = may["infra"] = may["http"] = "base"
        may["fabric"] = "base record infra"
        may["compute"] = "base infra"
        may["storage"] = "base record infra http"
        may["collective"] = "base record infra fabric"
        may["text"] = "base storage"
        may["model"] = "base infra compute storage text"
        may["parallel"] = "base record infra fabric compute collective model"
        may["train"] = "base record infra fabric storage compute collective text model parallel"
        may["serve"] = may["train"] " http observe"
        may["plan"] = "base infra model"
        may["orchestrate"] = "base record infra http observe"
        may["observe"] = "base record infra http"
        may["post"] = may["serve"] " train serve"
        may["probe"] = "base record infra fabric compute collective observe"
        may["cmd"] = may["post"] " post plan orchestrate probe queue"
        may["queue"] = "base infra" # tools/queue
        # rooms that keep to less than their floor may
        room["serve/grammar"] = "base text/tokenizer serve/grammar"
        room["serve/tools"] = "base text/tokenizer serve/grammar serve/tools"
    }
    function violation(what) { print FILENAME ": " what; bad++ }
    FNR == 1 {
        files++
        floor = plain(FILENAME)
        sub(/\/.*/, "", floor)
        if (!(floor in may)) violation("unknown floor \"" floor "\"")
    }
    /^[ \t]*#[ \t]*include[ \t]*"[^"]*\/[^"]*"/ {
        header = $0
        gsub(/^[^"]*"|".*$/, "", header)
        target = header
        sub(/\/.*/, "", target)
        if (!(target in may)) next # a public header
        if (index(" " floor " " may[floor] " ", " " target " ") == 0) violation("floor \"" floor "\" may not include \"" header "\"")
        if (header ~ /_priv\.h$/ && target != floor) violation("\"" header "\" is private to " target)
        here = folder(plain(FILENAME))
        there = folder(header)
        if (here in room && index(" " room[here] " ", " " there " ") == 0) violation("room \"" here "\" may not include \"" header "\"")
        folders[here] = folders[there] = 1
        if (here != there && !((here, there) in edge)) {
            edge[here, there] = FILENAME " includes " header
            reach[here, there] = 1
        }
    }
    function plain(path) { sub(/^\.\.\/tools\//, "", path); return path }
    function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
    # Which folders each folder reaches, over any number of includes; two that reach each other are a circle.
    function find_circles(   k, i, j) {
        for (k in folders)
            for (i in folders)
                if ((i, k) in reach)
                    for (j in folders)
                        if ((k, j) in reach) reach[i, j] = 1
        for (i in folders)
            for (j in folders)
                if (i < j && (i, j) in reach && (j, i) in reach) {
                    print "folders " i " and " j " are in a circle" ((i, j) in edge ? ": " edge[i, j] : "") ((j, i) in edge ? "; " edge[j, i] : "")
                    bad++
                }
    }
    # The line of a page that says who may include its floor.
    function check_page(floor,    page, line, part, count, i, above, others) {
        page = floor "/README.md"
        while ((getline line < page) > 0)
            if (line ~ /^May include it: /) {
                gsub(/^May include it: |[`,.]/, "", line)
                count = split(line, part, " ")
                for (i = 1; i <= count; i++) above[part[i]] = 1
            }
        close(page)
        if (count == 0) { print page ": there is no line \"May include it: ...\""; bad++; return }
        for (others in may)
            if (others != floor && others != "queue" && (index(" " may[others] " ", " " floor " ") > 0) != (others in above)) {
                print page ": may " others " include it?"
                bad++
            }
    }
    END { find_circles(); for (floor in may) if (floor != "queue") check_page(floor); print "floors: " files + 0 " files, " bad + 0 " violations"; exit files == 0 || bad > 0 }'
