#!/usr/bin/env bash
# Prints a file of this folder with ${Names} filled in: outputs of the stack made of base.yaml, and words of the command line.
# usage: fill.sh STACK FILE [Name=value...]      exit code 1 if a name has no value
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
stack=$1 file=$2
shift 2
declare -A values
while IFS=$'\t' read -r name value; do
    [ -z "$name" ] || values[$name]=$value
done < <(aws cloudformation describe-stacks --stack-name "$stack" --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' --output text)
[ ${#values[@]} -gt 0 ] || { echo "fill: the stack $stack has no outputs" >&2; exit 1; }
for word in "$@"; do
    [[ $word == [A-Z]*=* ]] || { echo "fill: $word is not Name=value" >&2; exit 2; }
    values[${word%%=*}]=${word#*=}
done
text=$(grep -v '^ *#' "$file")
missing=()
for name in $(grep -o '[$]{[A-Za-z0-9]*}' <<< "$text" | tr -dc 'A-Za-z0-9\n' | sort -u); do
    [ -n "${values[$name]:-}" ] || { missing+=("$name"); continue; }
    text=${text//"\${$name}"/"${values[$name]}"}
done
[ ${#missing[@]} -eq 0 ] || { echo "fill: $file also needs: ${missing[*]}" >&2; exit 1; }
printf '%s\n' "$text"
