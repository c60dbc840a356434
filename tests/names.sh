#!/bin/sh
# One name, one thing. Over src/, include/ and tools/ this fails when
#   - a tag, an enumerator or a macro with the project's prefix (ash_, ASH_) is defined in more than one file;
#   - a header defines a tag or a constant without the prefix (templates, *_body.h and compute/cpu/, are as local as a .c);
#   - a function has the name of a struct, union or enum (without the prefix: of one in the same file).
# Macros that some file #undefs are parameters of a template or a list: they are not compared; PCRE2_* are that library's.
# Files that are built instead of another one (none.c, *_none.c, *_plain.c) may define what that one does.
# sh and awk are all it needs.
# usage: names.sh ROOT
root=${1:-.}
cd "$root" || exit 1
find src include tools -name '*.[ch]' | LC_ALL=C sort | xargs awk '
function reset_file() { in_comment = 0; in_enum = 0; parens = 0; fresh = 0; continued = 0 }
# The line without comments and with empty strings.
function strip(line,    out, token) {
    out = ""
    for (;;) {
        if (in_comment) {
            if (!match(line, /\*\//)) return out
            line = substr(line, RSTART + 2); in_comment = 0
        }
        if (!match(line, /\/\*|\/\/|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/)) return out line
        token = substr(line, RSTART, RLENGTH)
        out = out substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        if (token == "//") return out
        if (token == "/*") in_comment = 1
        else out = out "0"
    }
}
function note(kind, name) {
    if ((kind, name, FILENAME) in seen) return
    seen[kind, name, FILENAME] = 1
    key = kind SUBSEP name
    where[key] = where[key] " " FILENAME ":" FNR
    files[key]++
    total++
    if (FILENAME ~ /[\/_](none|plain)\.c$/) files[key]--
    if (FILENAME ~ /\.h$/ && FILENAME !~ /_body\.h$|\/compute\/cpu\//) headers[key]++
    if (kind == "tag") tag_in[name, FILENAME] = 1
}
# The first identifier after { or , outside parentheses is an enumerator, unless it is a macro call.
function enumerators(text,    c, name) {
    while (text != "") {
        c = substr(text, 1, 1)
        if (match(text, /^[A-Za-z_][A-Za-z_0-9]*/)) {
            name = substr(text, 1, RLENGTH); text = substr(text, RLENGTH + 1)
            if (fresh && text !~ /^[ \t]*\(/) note("constant", name)
            fresh = 0
            continue
        }
        text = substr(text, 2)
        if (c == "(") parens++
        else if (c == ")") parens--
        else if (c == "," && parens == 0) fresh = 1
        else if (c == "}") { in_enum = 0; return }
    }
}
FNR == 1 { reset_file() }
{
    line = strip($0)
    if (continued) { continued = line ~ /\\$/; next } # the rest of a macro
    if (line ~ /^[ \t]*#/) {
        continued = line ~ /\\$/
        if (match(line, /^[ \t]*#[ \t]*(define|undef)[ \t]+/)) {
            is_undef = line ~ /undef/
            name = substr(line, RLENGTH + 1)
            match(name, /^[A-Za-z_0-9]+/); name = substr(name, 1, RLENGTH)
            if (is_undef) parameter[name] = 1
            else if (name !~ /_H$|^PCRE2_/) note("constant", name)
        }
        next
    }
    if (in_enum) { enumerators(line); next }
    if (match(line, /(struct|union|enum)[ \t]+[A-Za-z_][A-Za-z_0-9]*[ \t]*\{/)) {
        head = substr(line, RSTART, RLENGTH)
        split(head, word, /[ \t{]+/)
        note("tag", word[2])
    }
    if (match(line, /(^|[^A-Za-z_0-9])enum([ \t]+[A-Za-z_][A-Za-z_0-9]*)?[ \t]*\{/)) {
        in_enum = 1; parens = 0; fresh = 1
        enumerators(substr(line, RSTART + RLENGTH))
        next
    }
    # Prototypes and definitions begin in column one.
    if (line ~ /^[a-z]/ && line !~ /^typedef/ && match(line, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
        name = substr(line, RSTART, RLENGTH - 1)
        if (name !~ /^__/ && !((name, FILENAME) in function_in)) {
            function_in[name, FILENAME] = 1
            functions[name] = functions[name] " " FILENAME ":" FNR
        }
    }
}
END {
    for (key in files) {
        split(key, part, SUBSEP)
        kind = part[1]; name = part[2]
        if (kind == "constant" && name in parameter) continue
        prefixed = name ~ /^(ash|ASH|ASHLAR)_/
        if (prefixed && files[key] > 1) { print kind " " name " is defined more than once:" where[key]; bad++ }
        if (!prefixed && headers[key] > 0) { print kind " " name " in a header has no prefix:" where[key]; bad++ }
    }
    for (name in functions) {
        if (!(("tag" SUBSEP name) in files)) continue
        clash = name ~ /^ash_/
        count = split(functions[name], place, " ")
        for (i = 1; i <= count; i++) { sub(/:[0-9]+$/, "", place[i]); if ((name, place[i]) in tag_in) clash = 1 }
        if (clash) { print "function " name " has the name of a tag:" functions[name] " |" where["tag" SUBSEP name]; bad++ }
    }
    printf "names: %d names, %d violations\n", total, bad + 0
    exit total == 0 || bad > 0
}' > "${TMPDIR:-/tmp}/names.$$"
rc=$?
LC_ALL=C sort "${TMPDIR:-/tmp}/names.$$"
rm -f "${TMPDIR:-/tmp}/names.$$"
exit $rc
