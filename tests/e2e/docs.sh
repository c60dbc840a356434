#!/usr/bin/env bash
# What the documentation says is there: links lead somewhere and back, commands have the flags and settings that they are shown with,
# files and folders that are named exist, what `make docs` writes is up to date.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cd "$SOURCE" || exit 1
shopt -s globstar nullglob
pages=(*.md docs/**/*.md tests/*/README.md src/**/README.md bench/**/README.md)
[ ${#pages[@]} -gt 30 ] || fail "only ${#pages[@]} pages were found"

# The anchors of a page's headings, as GitHub makes them.
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ / {
        sub(/^#+ /, ""); name = tolower($0); gsub(/[^a-z0-9 _-]/, "", name); gsub(/ /, "-", name)
        print seen[name]++ ? name "-" seen[name] - 1 : name }' "$1"
}
for page in "${pages[@]}"; do
    for link in $(grep -o '\]([^) ]*)' "$page" | sed 's/^](\(.*\))$/\1/' | grep -v '^https\?:'); do
        target=${link%%#*}
        [ -n "$target" ] && target=$(dirname "$page")/$target || target=$page
        [ -e "$target" ] || { fail "$page: there is no $link"; continue; }
        case $link in *#*) anchors "$target" | grep -qx -- "${link#*#}" || fail "$page: there is no heading for $link" ;; esac
    done
done

# links FROM: the files that a page links to, from the root of the tree.
links() {
    grep -o '\]([^) ]*)' "$1" | sed -e 's/^](\(.*\))$/\1/' -e 's/#.*//' | grep -v -e '^https\?:' -e '^$' |
        while read -r link; do realpath --relative-to=. "$(dirname "$1")/$link"; done
}
# Every page of docs/ can be reached from its index, and every page but the index leads back to an index.
links docs/README.md > "$SCRATCH/reached"
links docs/reference/README.md >> "$SCRATCH/reached"
links docs/planning.md >> "$SCRATCH/reached"
for page in docs/**/*.md; do
    [ "$page" = docs/README.md ] && continue
    grep -qx "$page" "$SCRATCH/reached" || fail "docs/README.md does not lead to $page"
    links "$page" | grep -qx -e docs/README.md || fail "$page does not lead back to docs/README.md"
done
for figure in docs/figures/*.svg; do
    grep -q "(.*${figure##*/})" "${pages[@]}" || fail "no page shows $figure"
done

# Pages say what is, not what was done on which day (examples of files may have dates).
awk 'FNR == 1 { code = 0 } /^[ \t]*```/ { code = !code } !code && /20[0-9][0-9]-[01][0-9]-[0-3][0-9]/ { print FILENAME ":" FNR ": " $0 }' docs/*.md docs/kernels/*.md docs/tutorials/*.md > "$SCRATCH/days"
[ -s "$SCRATCH/days" ] && fail "pages name days: $(head -n 3 "$SCRATCH/days")"

# The version is the program's.
version=$("$ASHLAR" --version | sed -n '1s/^ashlar \([0-9.]*\) .*/\1/p')
grep -q "^Version ${version:-none}\." README.md || fail "README.md does not name version $version"
grep -qx "## ${version:-none}" CHANGELOG.md || fail "CHANGELOG.md has no section $version"

# What `make docs` writes.
bash scripts/reference.sh "$ASHLAR" "$SCRATCH/reference"
diff -r "$SCRATCH/reference" docs/reference > "$SCRATCH/diff" || fail "the reference is not up to date (make docs): $(head -n 5 "$SCRATCH/diff")"
if command -v python3 > /dev/null; then
    python3 scripts/figures.py "$SCRATCH/figures"
    python3 bench/history/plot.py bench/history "$SCRATCH/figures/performance-history.svg"
    diff -r "$SCRATCH/figures" docs/figures > "$SCRATCH/diff" || fail "figures are not up to date (make docs): $(head -n 3 "$SCRATCH/diff" | cut -c1-200)"
    python3 bench/history/table.py bench/history "$SCRATCH/rows.md"
    diff "$SCRATCH/rows.md" docs/performance-rows.md > "$SCRATCH/diff" || fail "docs/performance-rows.md is not up to date (make docs): $(head -n 3 "$SCRATCH/diff")"
fi
# The rows at a glance are rows of that page.
sed -n '/^## At a glance/,/^\[All rows/p' docs/performance.md | grep '^| [a-z]' > "$SCRATCH/glance"
[ "$(wc -l < "$SCRATCH/glance")" -eq 9 ] || fail "docs/performance.md has no eight rows at a glance: $(cat "$SCRATCH/glance")"
while IFS= read -r line; do
    grep -qxF "$line" docs/performance-rows.md || fail "docs/performance.md differs from the recorded runs: $line"
done < "$SCRATCH/glance"

# Everything in code type, a line each: blocks by line, spans over the ends of lines.
for page in "${pages[@]}"; do
    awk 'function spans(n, i, part) { n = split(text, part, "`"); for (i = 2; i <= n; i += 2) print part[i]; text = "" }
        /^```/ { spans(); code = !code; next } code { print; next } /^$/ { spans(); next } { text = text " " $0 } END { spans() }' "$page" |
        sed "s|^|$page: |"
done > "$SCRATCH/code"
[ "$(wc -l < "$SCRATCH/code")" -gt 1500 ] || fail "only $(wc -l < "$SCRATCH/code") pieces of code were found in the documentation"

# help_of WORDS...: the help texts of the commands among the words, one inside the other ("launch ... train job.yaml").
help_of() {
    local word file
    for word in "$@"; do
        case $word in [!a-z]* | *[!a-z-]*) continue ;; esac
        file=$SCRATCH/help-$parent-$word
        [ -e "$file" ] || "$ASHLAR" $parent "$word" --help > "$file" 2> /dev/null || : > "$file"
        [ -s "$file" ] || continue
        grep -q '^commands:' "$file" && parent=$word || parent=
        cat "$file"
    done
}
commands=0
while IFS= read -r line; do
    page=${line%%: *}
    set -f
    words=(${line#*ashlar })
    set +f
    parent=
    case ${words[0]:-} in COMMAND) continue ;; esac
    help_of "${words[@]}" > "$SCRATCH/help"
    [ -s "$SCRATCH/help-${words[0]}" ] || [ -s "$SCRATCH/help--${words[0]}" ] || { fail "$page: '${line#*: }' is no command"; continue; }
    commands=$((commands + 1))
    for word in "${words[@]}"; do
        case $word in
            '|' | '#') break ;;
            --help) ;;
            --[a-z]*) grep -q -- "^  ${word%%[^a-z0-9-]*}\b" "$SCRATCH/help" || fail "$page: '${line#*: }' has no $word" ;;
            [a-z]*.[a-z]*=*) grep -q "^  ${word%%=*} " "$SCRATCH/help" || fail "$page: '${line#*: }' has no setting ${word%%=*}" ;;
        esac
    done
done < <(grep -E ': (\$ |.*\| )?ashlar [a-z]' "$SCRATCH/code")
[ "$commands" -gt 120 ] || fail "only $commands commands were found in the documentation"

# Settings and flags by themselves belong to some command, keys of a job's sections are settings, files are somewhere in the tree.
cat "$SCRATCH"/help-* > "$SCRATCH/help"
find . -path ./.git -prune -o -path './build*' -prune -o -type f -print > "$SCRATCH/files"
find src tools tests bench docs examples scripts include -type d > "$SCRATCH/folders"
awk -v help="$SCRATCH/help" -v files="$SCRATCH/files" -v folders="$SCRATCH/folders" '
    function wrong(text) { print page ": " text }
    BEGIN {
        while ((getline line < help) > 0) {
            if (match(line, /^  --(\[no-\])?[a-z0-9-]+/)) { name = substr(line, 3, RLENGTH - 2); sub(/\[no-\]/, "", name); flags[name] }
            if (match(line, /^  [a-z]+\.[a-z_0-9.]+ /)) { name = substr(line, 3, RLENGTH - 3); settings[name]; sub(/\..*/, "", name); sections[name] }
        }
        while ((getline line < files) > 0)
            while (sub(/^[^\/]*\//, "", line)) known[line]
        while ((getline line < folders) > 0) known[line "/"]
    }
    {
        page = $0; sub(/: .*/, "", page)
        code = substr($0, length(page) + 3)
        if (code ~ /^[a-z]+:( *#.*)?$/) { section = code; sub(/:.*/, "", section); next }
        if (section in sections && match(code, /^  [a-z_0-9]+:/)) {
            name = section "." substr(code, 3, RLENGTH - 3)
            keys++
            if (!(name in settings)) wrong("there is no setting " name)
            next
        }
        if (code !~ /^ /) section = ""
        if (code ~ / /) next
        if (code ~ /^--[a-z]/) {
            match(code, /^--[a-z0-9-]+/)
            name = substr(code, 1, RLENGTH)
            if (name !~ /-$/ && !(name in flags) && !(sub(/^--no-/, "--", name) && name in flags)) wrong("no command has " code)
        } else if (code ~ /\/.*\.(c|h|sh|csv|yaml|mjs|py|md)$/) {
            if (code !~ /[*{}A-Z<]/ && code !~ /^\// && code !~ /^runs\// && !(code in known)) wrong("there is no file " code)
        } else if (code ~ /^(src|tools|tests|bench|docs|include)\/.*\/$/ || code ~ /^(examples|scripts)\/$/) {
            if (!(code in known)) wrong("there is no folder " code)
        } else if (code !~ /\// && code !~ /\.([ch]|safetensors|yaml|jsonl?)$/ && match(code, /^[a-z]+\.[a-z][a-z_0-9.]*/)) {
            name = substr(code, 1, RLENGTH); first = name; sub(/\..*/, "", first)
            if (first in sections && !(name in settings) && code !~ /[*{]/) wrong("there is no setting " code)
        }
    }
    END { if (keys < 20) print "only " keys + 0 " keys of jobs were found in the documentation" }' "$SCRATCH/code" > "$SCRATCH/wrong"
while IFS= read -r line; do fail "$line"; done < "$SCRATCH/wrong"
finish
