#!/usr/bin/env python3
"""usage: bench/records.py [--check] [FILE...]

The one format of bench/results, and the way to it. A file has one JSON object per line. The first
is {"about": {...}}: the command that takes the records again, and all that is the same in each of
them (commit, processor, MPI, settings). Each line after it is one case with what differs: quartiles
and how many repetitions they are of, never the repetitions themselves.

Without --check it brings FILEs into that format (default: all under bench/results), also what `rill
bench` and the scripts here have just written; a file that has it stays as it is. --check changes
nothing, and fails if a file is not in that format. In Python: load(path), save(path, records,
command).
"""
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")
COMMANDS = {  # of the files that several scripts or none write; others: see command_of
    "grid-16-cores.jsonl": "bench/grid host  # on 16 cores",
    "overlap.jsonl": "rill bench overlap --ranks 2  # on 16 cores",
    "skew.jsonl": "rill bench reducer --ranks 16 --dim 2^18 --k 4096 --codec raw --update stream"
    " --algorithm oktopk --support skewed",
    "peers_select.jsonl": "bench/peers_select --json FILE",
}
SCRIPTS = ("conditions", "grid", "link", "network", "scalar", "volume")


def command_of(path):
    """What takes the records of a file under bench/results again."""
    name = os.path.relpath(os.path.abspath(path), RESULTS)
    stem = os.path.basename(name)[: -len(".jsonl")]
    folder = os.path.dirname(name)
    if name in COMMANDS:
        return COMMANDS[name]
    if folder == "paper":
        return f"bench/paper/{stem}"
    if folder == "train":
        return f"bench/train {stem}"
    if folder == "python":
        return f"bench/python/{stem.split('-')[0]}"
    if stem.startswith("convergence-"):
        return "bench/convergence/run"
    return f"bench/{stem}" if stem in SCRIPTS else f"bench/run {stem}"


def read(path):
    """(about, records with all of their fields)"""
    about, records = {}, []
    with open(path) as file:
        for line in filter(str.strip, file):
            record = json.loads(line)
            if "about" in record:
                about = record["about"]
            else:
                records.append({**about.get("common", {}), **record})
    return about, records


def load(path):
    """The records of a file, each with all of its fields; none if there is no file."""
    return read(path)[1] if os.path.exists(path) else []


def quartiles(times):
    if len(times) < 2:
        return times[0], times[0], times[0]
    return tuple(statistics.quantiles(times, n=4, method="inclusive"))


def condensed(record):
    """Quartiles and a count in the place of repetitions: times_s, c_times_s and so on."""
    made = {}
    for key, value in record.items():
        if not key.endswith("times_s") or not isinstance(value, list):
            made[key] = value
            continue
        before = key[: -len("times_s")]  # "", "c_", "hook_"
        made[before + "reps"] = len(value)
        if value:
            p25, median, p75 = quartiles(value)
            for name, figure in (("p25_s", p25), ("median_s", median), ("p75_s", p75)):
                if before + name not in record:
                    made[before + name] = figure
    return made


def traced(records):
    """Of bench/convergence/trace: what the table needs of each run, and the steps of the run that
    is drawn."""
    made = []
    if all("steps" in r for r in records if "step" not in r) and any("steps" in r for r in records):
        return records
    runs = {}
    for r in records:
        runs.setdefault((r["model"], r["method"]), []).append(r)
    for (model, method), run in runs.items():
        fields = ("selected_off", "gaussian_rule_off", "nnz_out_off", "xi")
        means = {name: sum(r[name] for r in run) / len(run) for name in fields}
        made.append(
            {
                "model": model,
                "method": method,
                "steps": len(run),
                **means,
                "xi_max": max(r["xi"] for r in run),
            }
        )
    keys = ("model", "method", "step", "k", "selected_k", "gaussian_rule_k", "nnz_out", "xi")
    return made + [{key: r[key] for key in keys} for r in runs.get(("network", "oktopk"), [])]


def last_epochs(records):
    """Of bench/train quality: the last epoch of each run, which is where its figures come from."""
    kept = []
    for r in records:
        follows = kept and r.get("epoch", 0) > 1 and kept[-1].get("epoch") == r["epoch"] - 1
        if follows and kept[-1].get("options") == r.get("options"):
            kept.pop()
        kept.append(r)
    return kept


def save(path, records, command=None):
    """Writes the records in the format of bench/results."""
    records = [condensed(r) for r in records]
    name = os.path.basename(path)
    if name == "convergence-trace.jsonl":
        records = traced(records)
    if os.path.join("train", "quality.jsonl") in path:
        records = last_epochs(records)
    common = {}
    for key, value in (records[0] if len(records) > 1 else {}).items():
        if all(key in r and r[key] == value and type(r[key]) is type(value) for r in records):
            common[key] = value
    lines = [{"about": {"command": command or command_of(path), "common": common}}]
    lines += [{key: value for key, value in r.items() if key not in common} for r in records]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    if not os.path.exists(path) or open(path).read() != text:
        with open(path, "w") as file:
            file.write(text)


def wrong(path):
    """Why a file is not in the format, or None."""
    about, records = read(path)
    if not about.get("command"):
        return "does not begin with the command that takes it again"
    for number, record in enumerate(records, 2):
        lists = [
            key
            for key, value in record.items()
            if key.endswith("times_s") and isinstance(value, list)
        ]
        if lists:
            return f"line {number} has every repetition ({lists[0]})"
    return None


def main():
    arguments = sys.argv[1:]
    if any(word in ("-h", "--help") for word in arguments):
        sys.exit(__doc__)
    check = "--check" in arguments
    files = [word for word in arguments if word != "--check"]
    if not files:
        files = sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(RESULTS)
            for name in names
            if name.endswith(".jsonl")
        )
    failed = False
    for path in files:
        if check:
            reason = wrong(path)
            if reason:
                print(f"{os.path.relpath(path)}: {reason}: bench/records.py brings it into shape")
                failed = True
        else:
            about, records = read(path)
            save(path, records, about.get("command"))
    sys.exit(failed)


if __name__ == "__main__":
    main()
