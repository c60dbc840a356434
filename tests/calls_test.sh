#!/usr/bin/env bash
# calls.awk finds circles of calls that are planted in a small tree, and takes no other text for a call.
set -euo pipefail
calls=$(cd "$(dirname "$0")" && pwd)/calls.awk
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p src/low src/high

figures() { find src -name '*.[ch]' | LC_ALL=C sort | xargs awk -f "$calls" | tr '\n' ' '; }
expect() {
    local got
    got=$(figures)
    [ "$got" = "functions_declared_elsewhere $1 folders_in_call_circles $2 files_in_call_circles $3 files_in_the_largest_call_circle $4 " ] || {
        echo "$5: $got"
        exit 1
    }
}

cat > src/low/low.h << 'END'
/* Add. */
int ash_low_add(int a);
/* Take away. */
int ash_low_take(int a);
struct ash_high_run { int (*ash_high_go)(int a); };
END
cat > src/low/add.c << 'END'
#include "low/low.h"
/* ash_low_take(1); in a comment */ // ash_low_take(2)
int ash_low_add(int a)
{
    struct ash_high_run *run = 0; /* over two lines: ash_low_take(3)
        ash_low_take(4) */
    return run->ash_high_go(a) + sizeof("ash_low_take(5) \" ash_low_take(6)") + sizeof(struct ash_low_take);
}
END
cat > src/low/take.c << 'END'
int ash_low_take(int a) { return '"' + ash_low_add(a); }
END
cat > src/high/high.h << 'END'
/* Go. */
int ash_high_go(int a);
END
cat > src/high/high.c << 'END'
int ash_high_go(
    int a)
{
    return ash_low_take(a);
}
END
expect 0 0 0 0 "calls go down only"

cat > src/low/table.c << 'END'
extern int (*const ash_low_table[])(int);
int (*const ash_low_table[])(int) = {ash_low_add};
END
expect 0 0 0 0 "a table that calls down"

echo 'int ash_low_third(int a) { return ash_low_take(a); }' >> src/low/add.c
expect 0 0 2 2 "two files of a folder"

echo 'static int (*const up[])(int) = {ash_high_go};' >> src/low/take.c
expect 0 2 3 3 "a function in a table, of the folder above"

echo 'int ash_low_third(int a);' >> src/high/high.h
expect 1 2 3 3 "a prototype in another folder's header"
echo "calls: circles found"
