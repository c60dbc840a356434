#!/usr/bin/env bash
# Writes the man page from what the program itself says: `scripts/man.sh build/ashlar > ashlar.1`. The build calls it.
set -euo pipefail
ashlar=$1

# Text that roff prints as it is.
verbatim() {
    printf '.nf\n'
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\\&&/"
    printf '.fi\n'
}
# The names in the "commands:" list of a help text.
names() { sed -n '/^commands:/,/^$/s/^  \([a-z_-]*\) .*/\1/p'; }

section() { # words of a command
    local help
    help=$("$ashlar" "$@" --help)
    printf '.SH ASHLAR %s\n' "$(tr '[:lower:]' '[:upper:]' <<< "$*")"
    verbatim <<< "$help"
    for name in $(names <<< "$help"); do section "$@" "$name"; done
}

cat << 'ROFF'
.\" Written by scripts/man.sh from the program's own help.
.TH ASHLAR 1 "" "" "User Commands"
.SH NAME
ashlar \- train, measure and run language models
.SH SYNOPSIS
.B ashlar
.I COMMAND
[arguments]
.SH DESCRIPTION
A foundation-model stack in one program. Models are Hugging Face folders, read and written as they are.
A setting is given as \fB\-\-flag value\fR or \fBkey=value\fR, or in the environment:
\fBtrain.steps\fR can come from \fBASHLAR_TRAIN_STEPS\fR.
ROFF
overview=$("$ashlar" --help)
verbatim <<< "$overview"
for name in $(names <<< "$overview"); do section "$name"; done
cat << 'ROFF'
.SH EXIT STATUS
0 on success, 1 after a failure that was reported on standard error in one line, 2 after wrong usage, 130 after Ctrl\-C.
ROFF
