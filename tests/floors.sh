#!/usr/bin/env bash
# The floor rule: a file may include headers of its own folder and of the floors below it, never above. Prints each violation.
set -u
root=$1
allowed() { # folder -> folders it may include
    case $1 in
    base)        echo "" ;;
    infra)       echo "base" ;;
    fabric|storage|compute) echo "base infra" ;;
    collective)  echo "base infra fabric" ;;
    model)       echo "base infra compute storage" ;;
    train|serve) echo "base infra fabric storage compute collective model" ;;
    plan)        echo "base infra model" ;;
    orchestrate|observe) echo "base infra" ;;
    cmd)         echo "base infra fabric storage compute collective model train serve plan orchestrate observe" ;;
    *)           echo "?" ;;
    esac
}
bad=0 files=0
while IFS= read -r file; do
    files=$((files + 1))
    rel=${file#"$root"/src/}
    floor=${rel%%/*}
    may=$(allowed "$floor")
    [ "$may" = "?" ] && { echo "$rel: unknown floor '$floor'"; bad=$((bad + 1)); continue; }
    while IFS= read -r header; do
        target=${header%%/*}
        case $header in */*) ;; *) continue ;; esac          # same folder
        [ -d "$root/src/$target" ] || continue               # a system or public header
        case " $floor $may " in *" $target "*) ;; *) echo "$rel: floor '$floor' may not include \"$header\""; bad=$((bad + 1)) ;; esac
        case $header in *_priv.h) [ "$target" = "$floor" ] || { echo "$rel: \"$header\" is private to $target"; bad=$((bad + 1)); } ;; esac
    done < <(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file")
done < <(find "$root/src" -name '*.[ch]' -o -name '*.cu')
echo "floors: $files files, $bad violations"
[ "$files" -gt 0 ] && [ "$bad" -eq 0 ]
