# Which file calls which, from the text alone (no build): a function's name in a .c file, in a call or in a table, counts as a call of
# the .c file that defines it. Inline functions of headers do not count. Reads .c and .h files; prints figures for
# tests/ratchets.sh:
# - functions_declared_elsewhere: a header declares it and a .c file of another folder defines it (include/ashlar apart, the public API)
# - folders_in_call_circles: folders that call each other, directly or over others
# - files_in_call_circles, files_in_the_largest_call_circle: the same of files
# With -v show=1 it prints each of them, with the calls that tie a circle.
FNR == 1 { file = plain(FILENAME); depth = 0; statement = ""; in_comment = 0; in_macro = 0; is_header = file ~ /\.h$/ }
{ line = strip($0) }
in_macro || line ~ /^[ \t]*#/ { in_macro = line ~ /\\$/; next } # directives and macros
{
    # `statement` is the text at file scope up to the next brace or semicolon; a declaration or a definition begins with it.
    while (match(line, /[{};]|ash(lar)?_[a-z0-9_]+/)) {
        word = substr(line, RSTART, RLENGTH)
        before = substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        if (depth == 0) statement = statement before (length(word) > 1 ? word : "")
        if (word == "{") { if (depth++ == 0) define(statement) }
        else if (word == "}") { if (depth > 0 && --depth == 0) statement = "" }
        else if (word == ";") { if (depth == 0) { declare(statement); statement = "" } }
        else if (depth > 0 && !is_header && before !~ /(struct|enum|union|\.|->)[ \t]*$/) used[file, word] = 1
    }
    if (depth == 0) statement = statement line " "
}

function plain(path) { sub(/^\.?\/?(src|tools)\//, "", path); return path }
function folder(path) { sub(/\/[^\/]*$/, "", path); return path }

# The line without comments, strings and character constants.
function strip(text,    out, at, rest) {
    gsub(/\\\\/, "", text)
    gsub(/\\["']/, "", text)
    out = ""
    while (text != "") {
        if (in_comment) {
            at = index(text, "*/")
            if (at == 0) return out
            text = substr(text, at + 2)
            in_comment = 0
        }
        if (!match(text, /"[^"]*"|'[^']*'|\/\/.*|\/\*/)) return out text
        out = out substr(text, 1, RSTART - 1)
        in_comment = substr(text, RSTART, 2) == "/*"
        text = substr(text, RSTART + RLENGTH)
    }
    return out
}

# The function that a statement at file scope declares or defines; empty if none.
function function_in(text) {
    if (text ~ /typedef|=/ || !match(text, /ash(lar)?_[a-z0-9_]+\(/)) return ""
    return substr(text, RSTART, RLENGTH - 1)
}
function define(text,    name) {
    if (!is_header && (name = function_in(text)) != "") definers[name] = definers[name] " " file
}
function declare(text,    name) {
    if (is_header && (name = function_in(text)) != "") declared[name] = file
}

# Edges: from the file of a use to each file that defines the name (one for builds without a library may be another).
function connect(   key, part, n, i, to) {
    for (key in used) {
        split(key, part, SUBSEP)
        if (!(part[2] in definers)) continue
        n = split(definers[part[2]], to, " ")
        for (i = 1; i <= n; i++) if (to[i] == part[1]) n = 0 # its own
        for (i = 1; i <= n; i++) {
            edge("file", part[1], to[i], part[2])
            if (folder(part[1]) != folder(to[i])) edge("folder", folder(part[1]), folder(to[i]), part[1] " -> " to[i] ": " part[2])
        }
    }
}
function edge(kind, from, to, why) {
    if (!((kind, from, to) in why_of)) next_of[kind, from] = next_of[kind, from] " " to
    if (split(why_of[kind, from, to], few, "\n") < 6) why_of[kind, from, to] = why_of[kind, from, to] "    " why "\n"
    nodes[kind, from] = nodes[kind, to] = 1
}

# Strongly connected components (Tarjan).
function visit(kind, node,    i, n, to, other, size, names) {
    index_of[kind, node] = low[kind, node] = ++visited
    stack[++top] = node
    on_stack[kind, node] = 1
    n = split(next_of[kind, node], to, " ")
    for (i = 1; i <= n; i++)
        if (!((kind, to[i]) in index_of)) {
            visit(kind, to[i])
            if (low[kind, to[i]] < low[kind, node]) low[kind, node] = low[kind, to[i]]
        } else if (on_stack[kind, to[i]] && index_of[kind, to[i]] < low[kind, node]) low[kind, node] = index_of[kind, to[i]]
    if (low[kind, node] != index_of[kind, node]) return
    do {
        other = stack[top--]
        on_stack[kind, other] = 0
        names = names " " other
        component[kind, other] = node
        size++
    } while (other != node)
    if (size < 2) return
    circled[kind] += size
    if (size > largest[kind]) largest[kind] = size
    if (show) print_circle(kind, node, size, names)
}
function print_circle(kind, root, size, names,    i, j, n, name, m, to) {
    print "circle of " size " " kind "s:" names
    n = split(names, name, " ")
    for (i = 1; i <= n; i++) {
        m = split(next_of[kind, name[i]], to, " ")
        for (j = 1; j <= m; j++)
            if (component[kind, to[j]] == root) printf "  %s -> %s\n%s", name[i], to[j], why_of[kind, name[i], to[j]]
    }
}
END {
    for (name in declared) {
        if (!(name in definers) || declared[name] ~ /^include\//) continue
        n = split(definers[name], to, " ")
        for (i = 1; i <= n; i++) if (folder(to[i]) == folder(declared[name])) n = 0
        if (n == 0) continue
        strangers++
        if (show) print name ": " declared[name] " declares it, " to[1] " defines it"
    }
    connect()
    for (key in nodes) {
        split(key, part, SUBSEP)
        if (!(key in index_of)) visit(part[1], part[2])
    }
    print "functions_declared_elsewhere " strangers + 0
    print "folders_in_call_circles " circled["folder"] + 0
    print "files_in_call_circles " circled["file"] + 0
    print "files_in_the_largest_call_circle " largest["file"] + 0
}
