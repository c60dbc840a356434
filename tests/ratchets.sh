#!/usr/bin/env bash
# Figures that may only get better: each is compared with tests/ratchets.txt. A worse one fails; write a better one down. All may
# only fall, but those in `rising`. Lengths and complexity need pmccabe, without which only the others are compared.
# usage: ratchets.sh [ROOT [--write]]
set -euo pipefail
cd "${1:-.}"
limits=tests/ratchets.txt
rising=assertions_per_1000_functions
sources() { find src include tools -name '*.[ch]' | LC_ALL=C sort; }
kernels() { find src -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort; }

# file_figures PREFIX < FILES: lines of the longest file; files of over 450 lines.
file_figures() {
    xargs wc -l | awk -v as="$1" '$2 != "total" { if ($1 > most) most = $1; if ($1 > 450) long++ }
        END { print as "file_lines_most " most; print as "files_over_450_lines " long + 0 }'
}

# function_figures PREFIX LINES < FILES. pmccabe: modified complexity, traditional, statements, first line, lines, file(line): function.
function_figures() {
    xargs pmccabe 2> /dev/null | awk -F'\t' -v as="$1" -v limit="$2" '
        { if ($1 > worst) worst = $1; if ($1 > 15) tangled++; if ($5 > most) most = $5; if ($5 > limit) long++ }
        END { print as "complexity_most " worst; print as "functions_over_complexity_15 " tangled + 0
              print as "function_lines_most " most; print as "functions_over_" limit "_lines " long + 0 }'
}

# Functions (definitions in .c files) with more than 6 parameters.
parameter_figures() {
    sources | grep '\.c$' | xargs awk '
        FNR == 1 { text = "" }
        /^[a-z].*\(/ && !/;/ && !/=/ { text = "" ; collecting = 1 }
        collecting { text = text $0; if ($0 ~ /;/) { collecting = 0 } else if ($0 ~ /^\{/) { count(text); collecting = 0 } }
        function count(signature,    n) { sub(/^[^(]*\(/, "", signature); n = gsub(/,/, ",", signature) + 1; if (n > 6) many++; if (n > most) most = n }
        END { print "parameters_most " most; print "functions_over_6_parameters " many + 0 }'
}

# Prototypes in headers without a comment directly above them or on their own line.
contract_figures() {
    sources | grep '\.h$' | grep -v '_body\.h$' | xargs awk '
        FNR == 1 { above = 0; in_comment = 0; open = 0 }
        in_comment { if (/\*\//) { in_comment = 0; above = 1 }; next }
        /^\/\*/ { if (!/\*\//) in_comment = 1; else above = 1; next }
        open { if (/;/) { open = 0; above = 0 }; next }
        /^[a-z][a-z0-9_ ]*[ *]ash_[a-z0-9_]+\(/ && !/^(static|typedef|return|extern const)/ {
            protos++
            if (!above && !/\/\*/) { bare++; if (ENVIRON["RATCHETS_SHOW"]) print FILENAME ":" FNR ": " $0 > "/dev/stderr" }
            if (!/;/) open = 1; else above = 0
            next
        }
        /^[ \t]*$/ || /./ { above = 0 }
        END { print "prototypes_without_contract " bare + 0 }'
}

# Files outside base/ that read the environment or end the process.
call_figures() {
    local found
    found=$(sources | grep -v '^src/base/\|^src/cmd/' | xargs grep -lE '\b(getenv|abort|exit)\(' | wc -l)
    echo "files_that_exit_or_getenv $found"
    echo "lines_over_120_columns $({ sources; kernels; } | xargs awk 'length($0) > 120' | wc -l)"
    echo "orphan_comment_ends $(sources | xargs grep -cE '^ \*/$' | awk -F: '{ n += $2 } END { print n + 0 }')"
}

# Figures of speech per 10,000 words of comments, of help texts and errors, and of pages (tests/sentences.awk).
sentence_figures() {
    find src include tools tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | xargs awk -v name=comments -f tests/sentences.awk
    sources | xargs awk -v name=texts -v want=texts -f tests/sentences.awk
    find README.md ARCHITECTURE.md CONTRIBUTING.md docs src -name '*.md' | LC_ALL=C sort | xargs awk -v name=docs -f tests/sentences.awk
}

# Invariants that the code states, at run time or compile time.
assertion_figures() {
    local assertions functions
    assertions=$(sources | grep -v '^src/base/assert\.h$' | xargs grep -ohE '\b(ash_assert|_Static_assert)\(' | wc -l)
    functions=$(sources | grep '\.c$' | xargs grep -h '^{$' | wc -l)
    echo "assertions_per_1000_functions $((1000 * assertions / functions))"
}

# Functions declared in another folder's header, and circles of calls (tests/calls.awk; -v show=1 lists them).
circle_figures() { sources | xargs awk -f tests/calls.awk; }

figures=$(
    circle_figures
    sources | file_figures ""
    kernels | file_figures cuda_
    parameter_figures
    contract_figures
    call_figures
    sentence_figures
    assertion_figures
    if command -v pmccabe > /dev/null; then
        sources | grep '\.c$' | function_figures "" 50
        kernels | function_figures cuda_ 42
    fi
)
if [ "${2:-}" = --write ]; then
    { echo "# Figures that may only get better (tests/ratchets.sh)."; echo "$figures"; } > "$limits"
    exit 0
fi
echo "$figures" | awk -v limits="$limits" -v rising="$rising" '
    BEGIN { while ((getline line < limits) > 0) if (line !~ /^#/) { split(line, part, " "); limit[part[1]] = part[2] } }
    !($1 in limit) { print $1 " has no limit in " limits; bad++; next }
    $1 == rising && $2 + 0 < limit[$1] + 0 { print $1 " is " $2 ", and may be " limit[$1] " at least: state invariants of the new code"; bad++ }
    $1 == rising { next }
    $2 + 0 > limit[$1] + 0 { print $1 " is " $2 ", and may be " limit[$1] " at most"; bad++ }
    $2 + 0 < limit[$1] + 0 { print $1 " fell from " limit[$1] " to " $2 ": write that into " limits }
    END { print "ratchets: " NR " figures, " bad + 0 " worse"; exit bad > 0 }'
