#!/usr/bin/env bash
# Which tests were skipped, and why: what they printed says how to have them.
# usage: scripts/skipped.sh LOG...     (ctest's LastTest.log)
for log in "$@"; do
    [ -e "$log" ] || continue
    awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 } /^skipped: / { sub(/^skipped: /, ""); print name ": " $0 }' "$log"
done | sort -u | sed '1s/^/skipped tests:\n/; s/\(^\|\n\)\([^ :]*: \)/\1  \2/g'
