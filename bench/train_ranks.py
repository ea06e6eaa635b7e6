"""The parts "ranks", "hosts" and "stream" of bench/train.

ranks: data of the URL shape, no flag but a held-out part: seconds from the start of reading until
the held-out loss is within half a percent of what one rank has at best; 1 and 2 ranks on this
machine, a thread each. RANKS_ROWS (2000000): rows; RANKS_EPOCHS (6): the epochs of each run.
RANKS_FILE: such a file that is there already.

hosts: the same on 1 and HOSTS ("8") simulated hosts of one core each, on a network of 1 Gbit/s
(lab/simulate: what ranks compute takes as long as here, one after the other; what they send is
calculated). Numbers of hosts may be several. SIMULATE=no: ranks of this machine instead, of which
accuracies count and seconds do not.

stream: a text file of STREAM_GB (10) gigabytes, one pass of sgd and of ftrl, in a control group
that may have STREAM_MEMORY (1) GiB, its part of the file cache included; and the same bits as in
memory, with the same window, on a small file. Needs root and twice the file's size of disk.
"""
import filecmp
import os
import re
import subprocess
import time

from train_runs import RILL, Skip, generate, run, simulator, train

# ---- ranks
# -----------------------------------------------------------------------------------------


def to_loss(lines, said, target):
    """Seconds to the held-out loss, from the start of reading; of reading, of the search for C and
    of training among them."""
    found = re.search(r"chosen in ([0-9.]+) s", said)
    parts = {"load": lines[0]["load_seconds"], "search": float(found[1]) if found else 0.0}
    parts["training"] = 0.0
    for line in lines:
        parts["training"] += line["seconds"]
        if line["valid_loss"] <= target:
            return {"all": line["elapsed_seconds"], **parts}
    return None


def one_number(bench, file, name, options, command, target):
    epochs = ["--epochs", os.environ.get("RANKS_EPOCHS", "6")]
    options = ["--valid", "5%", *epochs, *options]
    lines, said = train(bench, file, options, command=command, ranks_are=name)
    best = min(lines, key=lambda line: line["valid_loss"])
    target = target or 1.005 * best["valid_loss"]
    parts = to_loss(lines, said, target)
    data = lines[0]["data_bytes"] + lines[0]["mapped_bytes"]
    peak = re.search(r"at most ([0-9.]+) MB resident", said)
    about = {"peak_mb": float(peak[1]), "data_mb": data / 1e6}
    about["accuracy"], about["loss"] = best["valid_accuracy"], best["valid_loss"]
    bench.record(where=name, parts=parts, target=target, **about)
    words = "never" if not parts else ", ".join(f"{k} {v:.2f} s" for k, v in parts.items())
    bench.say(
        f"  {name:20} {words}; accuracy {100 * about['accuracy']:.2f} %, loss {about['loss']:.5f}; "
        f"at most {about['peak_mb']:.0f} MB resident, data {about['data_mb']:.0f} MB"
    )
    return {"parts": parts, "accuracy": about["accuracy"], "target": target}


def compare(bench, one, many, name, least):
    apart = 100 * abs(one["accuracy"] - many["accuracy"])
    bench.goal(f"{name}: accuracy {apart:.2f} points from one rank's, at most 0.2", apart <= 0.2)
    if not many["parts"]:
        return bench.goal(f"{name}: reaches the held-out loss", False)
    if least:
        ratio = one["parts"]["all"] / many["parts"]["all"]
        bench.goal(f"{name}: {ratio:.2f}x as fast, at least {least}x", ratio >= least)


def ranks_file(bench):
    if os.environ.get("RANKS_FILE"):
        return os.environ["RANKS_FILE"]
    rows = int(os.environ.get("RANKS_ROWS", "20000" if bench.quick else "2000000"))
    return generate(bench, "url", rows)


def part_ranks(bench):
    file = ranks_file(bench)
    # Once for nothing: memory that nobody had before is slow the first time.
    run([RILL, "train", file, "--C", "1", "--scale", "none", "--epochs", "1", "--quiet"])
    one = one_number(bench, file, "1 rank", [], None, None)
    two = one_number(bench, file, "2 ranks", ["--ranks", "2"], None, one["target"])
    compare(bench, one, two, "2 ranks", 1.6)


def part_hosts(bench):
    file, one = ranks_file(bench), None
    simulated = os.environ.get("SIMULATE") != "no"
    for n in [1, *map(int, os.environ.get("HOSTS", "2" if bench.quick else "8").split())]:
        command, more, name = None, ["--ranks", str(n)], f"{n} ranks"
        if simulated:
            command, more, name = simulator(n), [], f"{n} simulated hosts"
        this = one_number(bench, file, name, more, command, one and one["target"])
        if one:
            compare(bench, one, this, name, 4 if simulated and n == 8 else None)
        one = one or this


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
