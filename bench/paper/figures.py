"""What the tables and plots of bench/paper share."""
import os

try:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "rill"  # the same picture gives the same file
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

COLORS = {
    "mpi": "#777777",
    "dense": "#777777",
    "dsar": "#b07aa1",
    "recursive_double": "#4e79a7",
    "ring": "#9c755f",
    "split_allgather": "#f28e2b",
    "allgather": "#e15759",
    "gtopk": "#edc948",
    "oktopk": "#0a7f5a",
    "spardl": "#59a14f",
    "block": "#4e79a7",
    "s2": "#0a7f5a",
    "auto": "#0a7f5a",
}
GIGABIT, LATENCY = 119.5e6, 40e-6  # lab/platforms/1gbe.xml: bytes per second, seconds


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def ms(seconds):
    return (
        "-"
        if seconds is None
        else f"{1e3 * seconds:,.0f}"
        if seconds >= 1
        else f"{1e3 * seconds:.3g}"
    )


def percent(share):
    return f"{100 * share:.3g} %"


def values(records, key):
    return sorted({r[key] for r in records})


def find(records, **wanted):
    """The time of the record with these fields; None if there is none."""
    for r in records:
        if all(r.get(key) == value for key, value in wanted.items()):
            return r
    return None


def seconds(records, **wanted):
    r = find(records, **wanted)
    return r and r["median_s"]


class Figure:
    def __init__(self, item, folder, count=1):
        self.path = os.path.join(folder, f"paper-{item}.svg")
        self.figure, axes = plt.subplots(1, count, figsize=(7 if count == 1 else 5 * count, 3.6))
        self.axes = [axes] if count == 1 else list(axes)

    def draw(self, axes, points, name, style="-", label=None, color=None):
        points = sorted(p for p in points if p[1] is not None)
        if points:
            axes.plot(
                *zip(*points),
                style,
                color=color or COLORS.get(name),
                label=name if label is None else label or None,
                linewidth=1.8,
                markersize=4,
            )

    def finish(self, axes, x, y, title, log="xy"):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title, fontsize=10)
        if "x" in log:
            axes.set_xscale("log", base=2)
        if "y" in log:
            axes.set_yscale("log")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)

    def save(self):
        self.figure.tight_layout()
        self.figure.savefig(self.path, metadata={"Date": None})
        plt.close(self.figure)


def ratio(above, below):
    if not above or not below:
        return "-"
    return f"{above / below:,.0f}x" if above / below >= 1000 else f"{above / below:.3g}x"
