# The help texts: there, complete, and the same in both spellings. The manual has every option.
. "$(dirname "$0")/common.bash"
not_simulated

run 0 "$RILL" --help
has "$tmp/out" "usage: rill COMMAND" info bench "bench kernels" --version "Exit status"
run 0 "$RILL" help
run 2 "$RILL"
has "$tmp/err" "usage: rill COMMAND"
[[ ! -s $tmp/out ]] || fail "without arguments there is something on stdout"

run 0 "$RILL" --version
grep -qE '^rill [0-9]+\.[0-9]+\.[0-9]+$' "$tmp/out" || fail "no version"

for command in info bench "bench kernels" "bench overlap" gen convert train predict; do
    read -ra words <<<"$command"
    run 0 "$RILL" "${words[@]}" --help
    cp "$tmp/out" "$tmp/long"
    has "$tmp/long" "usage: rill $command" --help
    run 0 "$RILL" "${words[@]}" -h
    cmp -s "$tmp/out" "$tmp/long" || fail "$command: -h differs from --help"
    run 0 "$RILL" help "${words[@]}"
    cmp -s "$tmp/out" "$tmp/long" || fail "help $command differs from $command --help"
    awk 'length > 95 { print; bad = 1 } END { exit bad }' "$tmp/long" >&2 || fail "lines too long"
    page=$root/man/rill-${words[0]}.1
    grep -oE -- '--[a-z][a-z-]+' "$tmp/long" | sort -u | while read -r option; do
        grep -qE -- "Fl (h , )?-${option#--}( |\$)" "$page" || fail "$option is not in $page"
    done
done
