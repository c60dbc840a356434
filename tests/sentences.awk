# Counts figures of speech that CONTRIBUTING rules out, per 10,000 words of prose, rounded up.
# usage: awk -v name=PREFIX [-v want=texts] [-v show=1] -f sentences.awk FILE...
# Prose is the comments of C, CUDA and shell files; with want=texts the C string literals that contain a space;
# all of a page (.md) outside code blocks. show=1 prints every hit as FILE:LINE: phrase.
function found(phrase, kind) {
    hits[kind]++
    if (show) print FILENAME ":" FNR ": " kind ": " phrase
}
function look(text,    count, words, i, word) {
    gsub(/\\[nt]/, " ", text)
    text = tolower(text)
    gsub(/[^a-z']+/, " ", text)
    count = split(text, words, " ")
    for (i = 1; i <= count; i++) {
        word = words[i]
        total++
        if (word ~ /^(nobody|somebody|everybody|anybody|everyone|someone|anyone|whoever|whomever)('s)?$/) found(word, "nobody")
        if (last == "what" && word ~ /^(it|is|was|came|has)$/) found("what " word, "what_it")
        if (last == "where" && word ~ /^(it|that|there)$/) found("where " word, "where_it")
        if (word == "anew") found(word, "anew")
        if (before == "of" && last == "its" && word == "own") found("of its own", "anew")
        if ((last == "made" && word == "again") || (last == "at" && word == "hand")) found(last " " word, "anew")
        before = last
        last = word
    }
}
function figure(kind,    n) {
    n = hits[kind] * 10000 / (total ? total : 1)
    printf("%s_%s_per_10k_words %d\n", name, kind, (n > int(n)) ? int(n) + 1 : n)
}
FNR == 1 {
    in_comment = is_code = 0
    last = before = ""
    is_shell = FILENAME ~ /\.sh$/
    is_page = FILENAME ~ /\.md$/
}
is_page {
    if (/^[ \t]*```/) is_code = !is_code
    else if (!is_code) look($0)
    next
}
is_shell {
    if (FNR > 1 && match($0, /^[ \t]*#/)) look(substr($0, RLENGTH + 1))
    next
}
{
    rest = $0
    while (rest != "") {
        if (in_comment) {
            end = index(rest, "*/")
            if (want != "texts") look(end ? substr(rest, 1, end - 1) : rest)
            if (!end) break
            rest = substr(rest, end + 2)
            in_comment = 0
        } else if (match(rest, /\/\*|\/\/|"([^"\\]|\\.)*"|'([^'\\]|\\.)*'/)) {
            piece = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (piece == "/*") in_comment = 1
            else if (piece == "//") {
                if (want != "texts") look(rest)
                break
            } else if (want == "texts" && piece ~ /^".* .*"$/) look(substr(piece, 2, length(piece) - 2))
        } else break
    }
}
END {
    if (show) exit
    figure("nobody")
    figure("what_it")
    figure("where_it")
    figure("anew")
}
