# shellcheck shell=bash
# Sourced by the test scripts: runs test cases and counts them. Results go to the file
# $RILL_RESULTS, one line "pass|fail|skip NAME" each, with the seconds that it took behind tabs, so
# that scripts that call each other share one count; whoever created the file prints the closing
# line.

if [[ -z ${RILL_RESULTS:-} ]]; then
    RILL_RESULTS=$(mktemp)
    export RILL_RESULTS
    report_owner=1
    trap 'rm -f "$RILL_RESULTS"' EXIT
fi

# Set by who wants one case only: cases of other names do not run.
report_only=""
report_wanted() { [[ -z $report_only || $report_only == "$1" ]]; }

report_add() { # report_add pass|fail|skip NAME [DETAIL [SECONDS PROCESSOR-SECONDS]]
    local mark
    if ! report_wanted "$2"; then return; fi
    case $1 in
    pass) mark="ok  " ;;
    fail) mark="FAIL" ;;
    skip) mark="skip" ;;
    esac
    printf '  %s  %s%s\n' "$mark" "$2" "${3:+  ($3)}"
    printf '%s %s\t%s\t%s\n' "$1" "$2" "${4:-0}" "${5:-0}" >>"$RILL_RESULTS"
}

# report_run NAME LOG LIMIT COMMAND...: one case. Status 0 passes, 77 skips, and a command that
# takes more than LIMIT seconds is ended and fails.
report_run() {
    local name=$1 log=$2 limit=$3 status=0 took real user system used session TIMEFORMAT='%R %U %S'
    shift 3
    if ! report_wanted "$name"; then return; fi
    mkdir -p "$(dirname "$log")"
    # Jobs of Open MPI beside each other share a folder, and one that ends may remove it while
    # another starts: each case has its own.
    session=$(mktemp -d /tmp/rill.XXXXXX)
    took=$({ time OMPI_MCA_orte_tmpdir_base=$session timeout --kill-after=10 "$limit" "$@" \
        >"$log" 2>&1 </dev/null; } 2>&1) || status=$?
    rm -rf "$session"
    read -r real user system <<<"${took//,/.}" # a comma, by the locale
    used=$(LC_ALL=C awk -v u="$user" -v s="$system" 'BEGIN { print u + s }')
    case $status in
    0) report_add pass "$name" "${real%??} s" "$real" "$used" ;;
    77) report_add skip "$name" "$(tail -n 1 "$log")" ;;
    *)
        local reason="exit status $status"
        if ((status == 124 || status == 137)); then reason="hung: ended after $limit s"; fi
        report_add fail "$name" "$reason" "$real" "$used"
        { echo "$*" && tail -n 40 "$log"; } | sed 's/^/        | /'
        echo "        | (all of it: $log)"
        ;;
    esac
}

# report_start WEIGHT NAME LOG LIMIT COMMAND...: as report_run, beside others while the weights of
# all are not more than there are processors; one that is heavier waits until it is alone, and one
# of weight 0, since it waits itself, starts at once. What a case prints comes in one piece.
# report_wait: waits for all that were started so.
declare -A report_weight=()
report_start() {
    local weight=$1 busy pid
    shift
    if ! report_wanted "$1"; then return; fi
    while true; do
        busy=0
        for pid in $(jobs -rp); do busy=$((busy + ${report_weight[$pid]:-0})); done
        if ((busy == 0 || busy + weight <= $(nproc))); then break; fi
        wait -n || true
    done
    { text=$(report_run "$@") && printf '%s\n' "$text"; } &
    report_weight[$!]=$weight
}
report_wait() {
    if ((${#report_weight[@]})); then wait "${!report_weight[@]}" 2>/dev/null || true; fi
    report_weight=()
}

report_count() { grep -c "^$1 " "$RILL_RESULTS" || true; }

# Where the time went, when there is some. Seconds by the clock say less: cases run beside each
# other.
report_slowest() {
    local total
    total=$(LC_ALL=C awk -F '\t' '{ t += $3 } END { print int(t) }' "$RILL_RESULTS")
    if ((total < 60)); then return; fi
    echo
    echo "Most costly (seconds of a processor; by the clock), of $total s of processors:"
    # All lines are read: sort would fail, and we with it, if its reader went away.
    LC_ALL=C sort -t $'\t' -k3,3nr "$RILL_RESULTS" |
        LC_ALL=C awk -F '\t' '
            NR <= 10 { sub(/^[a-z]+ /, "", $1); printf "  %6.1f %6.1f  %s\n", $3, $2, $1 }'
}

# The closing line, by the script that opened the results; fails if a case failed.
report_close() {
    local failed skipped rest=""
    failed=$(report_count fail)
    if [[ -n ${report_owner:-} ]]; then
        skipped=$(report_count skip)
        if ((failed > 0)); then
            echo
            echo "Failed:"
            sed -n 's/^fail \([^\t]*\).*/  \1/p' "$RILL_RESULTS"
        fi
        report_slowest
        # What each case took, to be looked at later.
        if [[ -d build/test-logs ]]; then cp "$RILL_RESULTS" build/test-logs/results.tsv; fi
        echo
        if ((skipped > 0)); then rest=", $skipped skipped"; fi
        echo "$(report_count pass) passed, $failed failed$rest"
    fi
    ((failed == 0))
}
