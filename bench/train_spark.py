#!/usr/bin/env python3
"""The part "spark" of bench/train: logistic regression of Spark's MLlib beside rill train, on the
same rows, with the same penalty, without an intercept: how long each takes to the same objective,
which is within 1 % of the least, or where Spark is after SPARK_STEPS (100) steps. Data are read,
and Spark's are in memory, before the clock starts; Spark has made a whole training by then, so that
its code is compiled.

On one machine Spark has a thread, and rill a rank, for each of CORES (default: all). On HOSTS
(default 4) emulated hosts with links of RATE (1gbit) each has a worker of Spark with one thread, or
a rank. A worker and its executor take about 2 GB: MEMORY (2g) is the executor's, DRIVER (6g) the
driver's. SPARK_SETS (url news20); SPARK_ROWS (200000): of the URL shape. NETWORK=no leaves the
emulated hosts out, NETWORK=only all else. A step of Spark takes a second and more at the width of
these data.
"""
import json
import os
import subprocess
import sys
import time

from train_runs import LAB, RILL, ROOT, Skip, generate, real, train

CORES = int(os.environ.get("CORES", os.cpu_count() or 1))
HOSTS = int(os.environ.get("HOSTS", "4"))
RATE = os.environ.get("RATE", "1gbit")
MEMORY, DRIVER = os.environ.get("MEMORY", "2g"), os.environ.get("DRIVER", "6g")
CLOSE = 1.01  # times the least objective
MOST = int(os.environ.get("SPARK_STEPS", "100"))  # of either
PORT = 7077


# ---- Spark's side, a process of its own
# ------------------------------------------------------------


def session(master, parts):
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": DRIVER,
        "spark.executor.memory": MEMORY,
        "spark.driver.maxResultSize": "0",
        "spark.default.parallelism": parts,
        "spark.ui.enabled": "false",
        "spark.local.dir": os.environ["SPARK_SCRATCH"],
    }
    builder = SparkSession.builder.master(master).appName("rill")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def fit(master, parts, file, features, C, target):
    """Trains until the objective is below target, and prints what that took as JSON."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.sql.functions import col

    spark = session(master, parts)
    began = time.perf_counter()
    data = spark.read.format("libsvm").option("numFeatures", str(features)).load(file)
    data = data.withColumn("label", (col("label") > 0).cast("double")).repartition(parts).cache()
    rows = data.count()
    load = time.perf_counter() - began

    def train_for(steps):
        """MLlib's objective is the mean loss and |w|^2 / (2 C rows)."""
        began = time.perf_counter()
        model = LogisticRegression(
            maxIter=steps, regParam=1 / (C * rows), elasticNetParam=0.0, standardization=False,
            fitIntercept=False, tol=1e-12,
        ).fit(data)  # fmt: skip
        seconds = time.perf_counter() - began
        return [C * rows * value for value in model.summary.objectiveHistory], seconds

    history, _ = train_for(MOST)
    steps = next((i for i, value in enumerate(history) if value <= target), len(history) - 1)
    said = {"rows": rows, "load_seconds": load, "reached": history[steps], "steps": steps}
    said["seconds"] = train_for(steps)[1]
    spark.stop()
    print(json.dumps(said), flush=True)


def be_a_host(*work):
    """A rank of lab/cluster: a worker; the first is the master and the driver, too."""
    import pyspark

    home, scratch = os.path.dirname(pyspark.__file__), os.environ["SPARK_SCRATCH"]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    address, done = f"10.77.0.{rank + 1}", f"{scratch}/done"
    os.environ.update(SPARK_LOCAL_IP=address, SPARK_DAEMON_MEMORY="256m", SPARK_HOME=home)

    def start(kind, *options):
        name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        with open(f"{scratch}/{kind}.{rank}.log", "w") as log:
            return subprocess.Popen(
                [f"{home}/bin/spark-class", name, "--host", address, *options], stdout=log,
                stderr=log,
            )  # fmt: skip

    own = [start("Master", "--port", str(PORT), "--webui-port", "0")] if rank == 0 else []
    time.sleep(5)
    worker = ["--cores", "1", "--memory", MEMORY, "--webui-port", "0", "--work-dir"]
    own.append(start("Worker", *worker, f"{scratch}/work.{rank}", f"spark://10.77.0.1:{PORT}"))
    try:
        if rank == 0:
            time.sleep(5)
            fit(f"spark://10.77.0.1:{PORT}", *work)
    finally:
        if rank == 0:
            open(done, "w").close()
        while not os.path.exists(done):
            time.sleep(0.2)
        for process in own:
            process.terminate()


def main(role, parts, file, features, C, target):
    work = int(parts), file, int(features), float(C), float(target)
    fit(f"local[{parts}]", *work) if role == "fit" else be_a_host(*work)


# ---- the comparison
# --------------------------------------------------------------------------------


def by_spark(bench, role, parts, file, features, C, target, before=()):
    scratch = f"{bench.scratch}/spark-{role}-{os.path.basename(file)}"
    os.makedirs(scratch, exist_ok=True)
    # The driver's memory must be known before its JVM starts.
    environment = {
        **os.environ, "SPARK_SCRATCH": scratch, "OMP_NUM_THREADS": "1",
        "PYSPARK_SUBMIT_ARGS": f"--driver-memory {DRIVER} pyspark-shell",
    }  # fmt: skip
    words = [sys.executable, os.path.abspath(__file__), role, parts, file, features, C, target]
    done = subprocess.run(
        [*before, *map(str, words)], capture_output=True, text=True, env=environment
    )
    if done.returncode == 77:
        raise Skip((done.stderr.strip().splitlines() or ["not possible here"])[-1])
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not said:
        raise RuntimeError(f"Spark failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(said[-1])


def by_rill(bench, file, C, target, more, command=None):
    options = ["--C", str(C), "--no-bias", "--scale", "none", "--solver", "newton"]
    options += ["--epochs", str(MOST), *more]
    lines, _ = train(bench, file, options, command=command)
    spent = 0.0
    for line in lines:
        spent += line["seconds"]
        if target and line["objective"] <= target:
            return {"seconds": spent, "steps": line["epoch"], "load_seconds": line["load_seconds"]}
    return {"least": min(line["objective"] for line in lines)}


def compare(bench, name, where, least, ours, theirs):
    bench.record(set=name, where=where, who="rill", least=least, **ours)
    bench.record(set=name, where=where, who="spark", least=least, **theirs)
    if "seconds" not in ours:
        return bench.goal(f"{name}, {where}: rill comes as close in {MOST} steps", False)
    ratio = theirs["seconds"] / ours["seconds"]
    bench.say(
        f"  {name}, {where}: rill {ours['seconds']:.2f} s ({ours['steps']} steps of newton), "
        f"Spark {theirs['seconds']:.2f} s ({theirs['steps']} of L-BFGS); reading "
        f"{ours['load_seconds']:.2f} and {theirs['load_seconds']:.2f} s; objective "
        f"{100 * (theirs['reached'] / least - 1):.1f} % above the least"
    )
    bench.goal(f"{name}, {where}: {ratio:.1f}x as fast as Spark, at least 1x", ratio >= 1)


def one_set(bench, name, file, features, C):
    exact = by_rill(bench, file, C, None, ["--tolerance", "1e-6"])
    least = exact["least"]
    target = CLOSE * least
    network = os.environ.get("NETWORK")
    if network != "only":
        theirs = by_spark(bench, "fit", CORES, file, features, C, target)
        ours = by_rill(bench, file, C, theirs["reached"], ["--ranks", str(CORES)])
        compare(bench, name, f"{CORES} cores", least, ours, theirs)
    if network == "no":
        return
    cluster = [f"{ROOT}/lab/cluster", "--hosts", str(HOSTS), "--rate", RATE, "--quiet", *LAB, "--"]
    theirs = by_spark(bench, "host", HOSTS, file, features, C, target, before=cluster)
    ours = by_rill(bench, file, C, theirs["reached"], [], command=[*cluster, RILL])
    compare(bench, name, f"{HOSTS} emulated hosts, {RATE}", least, ours, theirs)


def part_spark(bench):
    try:
        import pyspark
    except ImportError as error:
        raise Skip("no PySpark (pip install pyspark; it needs Java)") from error
    bench.say(f"Spark {pyspark.__version__}: seconds to the same objective")
    rows = int(os.environ.get("SPARK_ROWS", "4000" if bench.quick else "200000"))
    sets = {
        "url": (lambda: generate(bench, "url", rows, "text"), 3231961, 1),
        "news20": (lambda: real(bench, "news20-12gram.train"), 1169345, 1),
    }
    wanted = os.environ.get("SPARK_SETS", "url" if bench.quick else "url news20").split()
    for name in wanted:
        file, features, C = sets[name]
        try:
            one_set(bench, name, file(), features, C)
        except Skip as why:
            bench.say(f"  {name}: skipped: {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
