"""The parts "ranks" and "stream" of bench/train.

ranks: data of the URL shape, no flag but a held-out part: how long reading, the search for C and
training take until the held-out loss is within half a percent of what one rank ends with; 1 and 2
ranks on this machine, a thread each; 1 and HOSTS (8) emulated hosts with links of RATE (1gbit),
where the machine has a core for each. RANKS_ROWS (2000000): rows.

stream: a text file of STREAM_GB (10) gigabytes, one pass of sgd and of ftrl, in a control group
that may have STREAM_MEMORY (1) GiB, its part of the file cache included; and the same bits as in
memory, with the same window, on a small file. Needs root and twice the file's size of disk.
"""
import filecmp
import os
import re
import subprocess
import time

from train_runs import LAB, RILL, ROOT, Skip, generate, run, train

HOSTS = int(os.environ.get("HOSTS", "8"))
RATE = os.environ.get("RATE", "1gbit")


# ---- ranks
# -----------------------------------------------------------------------------------------


def to_loss(lines, said, target):
    """Seconds of reading, of the search for C, and of training until the held-out loss."""
    found = re.search(r"chosen in ([0-9.]+) s", said)
    parts = {"load": lines[0]["load_seconds"], "search": float(found[1]) if found else 0.0}
    parts["training"] = 0.0
    for line in lines:
        parts["training"] += line["seconds"]
        if target and line["valid_loss"] <= target:
            return parts
    return None if target else parts


def one_number(bench, file, name, options, command, target):
    lines, said = train(bench, file, ["--valid", "5%", *options], command=command, ranks_are=name)
    least = min(line["valid_loss"] for line in lines)
    parts = to_loss(lines, said, target or 1.005 * least)
    best = min(lines, key=lambda line: line["valid_loss"])
    data = lines[0]["data_bytes"] + lines[0]["mapped_bytes"]
    peak = re.search(r"at most ([0-9.]+) MB resident", said)
    about = {"peak_mb": float(peak[1]), "data_mb": data / 1e6}
    bench.record(where=name, parts=parts, accuracy=best["valid_accuracy"], loss=least, **about)
    words = "never" if not parts else ", ".join(f"{k} {v:.2f} s" for k, v in parts.items())
    bench.say(
        f"  {name:20} {words}; accuracy {100 * best['valid_accuracy']:.2f} %, loss {least:.5f}; "
        f"at most {about['peak_mb']:.0f} MB resident, data {about['data_mb']:.0f} MB"
    )
    return {"parts": parts, "accuracy": best["valid_accuracy"], "target": 1.005 * least}


def compare(bench, one, many, name, least):
    apart = 100 * abs(one["accuracy"] - many["accuracy"])
    bench.goal(f"{name}: accuracy {apart:.2f} points from one rank's, at most 0.2", apart <= 0.2)
    if not many["parts"]:
        return bench.goal(f"{name}: reaches the held-out loss", False)
    for what, keys in (("all", ("load", "search", "training")), ("training", ("training",))):
        ratio = sum(one["parts"][k] for k in keys) / sum(many["parts"][k] for k in keys)
        bench.goal(f"{name}: {ratio:.2f}x as fast ({what}), at least {least}x", ratio >= least)


def part_ranks(bench):
    rows = int(os.environ.get("RANKS_ROWS", "20000" if bench.quick else "2000000"))
    file = generate(bench, "url", rows)
    one = one_number(bench, file, "1 rank", [], None, None)
    two = one_number(bench, file, "2 ranks", ["--ranks", "2"], None, one["target"])
    compare(bench, one, two, "2 ranks", 1.6)
    if (os.cpu_count() or 1) < HOSTS:
        return bench.say(f"  {HOSTS} hosts: skipped: they need a core each")

    def hosts(n):
        return [f"{ROOT}/lab/cluster", "--hosts", str(n), "--rate", RATE, "--quiet", *LAB, "--",
                RILL]  # fmt: skip

    one = one_number(bench, file, "1 host", [], hosts(1), None)
    many = one_number(bench, file, f"{HOSTS} hosts", [], hosts(HOSTS), one["target"])
    compare(bench, one, many, f"{HOSTS} hosts", 4)


# ---- data that do not fit
# --------------------------------------------------------------------------


def limited(bytes_):
    """A control group with that much memory: the file that processes enter it by."""
    for folder, name in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = f"{folder}/rill-bench-{os.getpid()}"
        try:
            os.makedirs(group, exist_ok=True)
            with open(f"{group}/{name}", "w") as limit:
                limit.write(str(bytes_))
            return group
        except OSError:
            continue
    raise Skip("no control group with a limit of memory can be made here (root?)")


def peak_of(group):
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if os.path.exists(f"{group}/{name}"):
            return int(open(f"{group}/{name}").read())
    return 0


def within(group, command):
    """The command in the group, what it said, and its seconds."""
    began = time.perf_counter()
    done = run(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group, *command])
    return done.stdout, time.perf_counter() - began


def same_bits(bench):
    file, models = generate(bench, "url", 20000, "text"), []
    for name, more in (("memory", ["--window", "4096"]), ("stream", ["--window", "4096"])):
        models.append(f"{bench.scratch}/{name}.model")
        more = [*more, "--stream"] if name == "stream" else more
        run([RILL, "train", file, "--model", models[-1], "--quiet", *more])
    bench.goal("the same bits as in memory", filecmp.cmp(*models, shallow=False))


def part_stream(bench):
    same_bits(bench)
    gigabytes = float(os.environ.get("STREAM_GB", "0.02" if bench.quick else "10"))
    most = float(os.environ.get("STREAM_MEMORY", "1")) * 2**30
    file = generate(bench, "url", int(gigabytes * 1e9 / 780), "text")
    size = os.path.getsize(file)
    subprocess.run(["sync"])
    for solver in ("sgd", "ftrl"):
        group = limited(int(most))
        options = ["--stream", "--solver", solver, "--C", "1", "--epochs", "1"]
        try:
            said, seconds = within(group, [RILL, "train", file, *options])
            peak = peak_of(group)
        finally:
            os.rmdir(group)
        read = float(re.search(r"read in ([0-9.]+) s", said)[1])
        bench.record(solver=solver, bytes=size, read_s=read, all_s=seconds, group_peak=peak)
        bench.say(
            f"  {solver}: {size / 1e9:.1f} GB read and kept in {read:.0f} s "
            f"({size / read / 1e6:.0f} MB/s), with a pass {seconds:.0f} s; at most "
            f"{peak / 2**20:.0f} MiB, the cache included"
        )
        bench.goal(f"{solver}: within {most / 2**30:g} GiB", peak <= most)
