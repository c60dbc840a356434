#!/usr/bin/env bash
# What the documentation says is there: links lead somewhere, commands have the flags and settings that they are shown with, files
# that are named exist.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
cd "$SOURCE" || exit 1
pages=(README.md ARCHITECTURE.md docs/*.md tests/*/README.md)

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

# Everything in code type, a line each: blocks by line, spans over the ends of lines.
for page in "${pages[@]}"; do
    awk 'function spans(n, i, part) { n = split(text, part, "`"); for (i = 2; i <= n; i += 2) print part[i]; text = "" }
        /^```/ { spans(); code = !code; next } code { print; next } /^$/ { spans(); next } { text = text " " $0 } END { spans() }' "$page" |
        sed "s|^|$page: |"
done > "$SCRATCH/code"
[ "$(wc -l < "$SCRATCH/code")" -gt 500 ] || fail "only $(wc -l < "$SCRATCH/code") pieces of code were found in the documentation"

# help_of WORDS...: the help texts of the commands among the words, one inside the other ("launch ... train job.yaml").
help_of() {
    local word file
    for word in "$@"; do
        case $word in [!a-z]* | *[!a-z]*) continue ;; esac
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
    help_of "${words[@]}" > "$SCRATCH/help"
    [ -s "$SCRATCH/help" ] || continue
    commands=$((commands + 1))
    for word in "${words[@]}"; do
        case $word in
            '|' | '#') break ;;
            --help) ;;
            --[a-z]*) grep -q -- "^  ${word%%[^a-z-]*}\b" "$SCRATCH/help" || fail "$page: '${line#*: }' has no $word" ;;
            [a-z]*.[a-z]*=*) grep -q "^  ${word%%=*} " "$SCRATCH/help" || fail "$page: '${line#*: }' has no setting ${word%%=*}" ;;
        esac
    done
done < <(grep -E ': (\$ |.*\| )?ashlar [a-z]' "$SCRATCH/code")
[ "$commands" -gt 40 ] || fail "only $commands commands were found in the documentation"

# Settings and flags by themselves belong to some command; files are somewhere in the tree.
cat "$SCRATCH"/help-* > "$SCRATCH/help"
find . -path ./.git -prune -o -path './build*' -prune -o -type f -print > "$SCRATCH/files"
while IFS= read -r line; do
    page=${line%%: *} code=${line#*: }
    case $code in
        *' '*) ;;
        --[a-z]*) grep -q -- "^  ${code%%[^a-z-]*}\b" "$SCRATCH/help" || fail "$page: no command has $code" ;;
        */*.[ch] | */*.sh | */*.csv | */*.yaml | */*.mjs)
            case $code in *[*{}A-Z\<]* | /*) continue ;; esac
            grep -q "/$code$" "$SCRATCH/files" || fail "$page: there is no file $code" ;;
    esac
done < "$SCRATCH/code"
finish
