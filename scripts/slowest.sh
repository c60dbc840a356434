#!/usr/bin/env bash
# The slowest twenty tests of the parts of a suite, in seconds, each with the part's build folder: what to make cheaper first.
# usage: scripts/slowest.sh LOG...     (ctest's LastTest.log)
for log in "$@"; do
    [ -e "$log" ] || continue
    part=${log%/Testing/Temporary/LastTest.log}
    awk -v part="${part##*/}" '
        /^[0-9]+\/[0-9]+ Testing: / { name = $3 }
        /^Test time = / { if (!(name in most)) tests++; if ($4 > most[name] + 0) most[name] = $4; all += $4 } # the longest of several tries
        END {
            for (name in most) printf "%9.1f  %s (%s)\n", most[name], name, part
            if (tests) printf "total %s: %d tests, %d s one after the other\n", part, tests, all
        }' "$log"
done | sort -rn | awk '/^total/ { totals = totals "\n" $0; next } ++rows <= 20 { rows_text = rows_text "\n" $0 }
    END { if (rows) print "slowest tests:" rows_text totals }'
