"""Tables and plots of what gTop-k, Ok-Topk and S2 Reducer show, and of many ranks."""

import math

from figures import COLORS, GIGABIT, LATENCY, Figure, find, ms, plt, ratio, table, values


def gtopk_formula(name, ranks, k):
    """Table I of the paper, in seconds; m = 1000 k."""
    alpha, word, log = 0.436e-3, 4 * 9e-9, math.log2(ranks)
    return {
        "mpi": 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * 1000 * k * word,
        "allgather": log * alpha + 2 * (ranks - 1) * k * word,
        "gtopk": 2 * log * alpha + 4 * k * log * word,
    }.get(name)


def gtopk_time(records, folder):
    names = ["mpi", "allgather", "gtopk", "oktopk", "spardl"]
    for r in records:
        r["k"] = r.get("k") or r["dim"] // 1000
    cases = [
        ("ranks", "ranks", lambda r: r["ranks"]),
        ("size", "MB, dense", lambda r: 4e-3 * r["k"]),
    ]
    for case, head, key in cases:
        mine = [r for r in records if r["case"] == case]
        if not mine:
            continue
        print(f"\nagainst {case}: ms (the paper's model)\n")
        rows = []
        for x in sorted({key(r) for r in mine}):
            row = [f"{x:g}"]
            for name in names:
                r = next((r for r in mine if key(r) == x and r["requested"] == name), None)
                model = r and gtopk_formula(name, r["ranks"], r["k"])
                row.append(
                    "-" if not r else ms(r["median_s"]) + (f" ({ms(model)})" if model else "")
                )
            rows.append(row)
        table([head] + names, rows)
    if not plt:
        return
    figure = Figure("gtopk_time", folder, 2)
    for axes, (case, head, key) in zip(figure.axes, cases):
        mine = [r for r in records if r["case"] == case]
        for name in names:
            line = [r for r in mine if r["requested"] == name]
            figure.draw(
                axes,
                [(key(r), 1e3 * r["median_s"]) for r in line],
                name,
                "o-",
                "dense" if name == "mpi" else name,
            )
            if gtopk_formula(name, 2, 1):
                figure.draw(
                    axes,
                    [(key(r), 1e3 * gtopk_formula(name, r["ranks"], r["k"])) for r in line],
                    name,
                    ":",
                    "",
                )
        what = "100 MB" if case == "ranks" else f"{max(values(mine, 'ranks'), default=0)} ranks"
        figure.finish(axes, head, "ms", f"{what}, rho = 0.001 (dotted: the paper's model)")
    figure.save()


def volumes(records, folder):
    """Words of table 1; bench/volume_table has every algorithm."""

    def share(p):
        return (p - 1) / p

    columns = [
        ("gtopk", "4k log P", lambda p, k: 4 * k * math.log2(p)),
        ("allgather", "2k(P-1)", lambda p, k: 2 * k * (p - 1)),
        ("split_allgather", "at least 4k(P-1)/P", lambda p, k: 4 * k * share(p)),
        ("oktopk", "at most 6k(P-1)/P", lambda p, k: 6 * k * share(p)),
        ("spardl", "4k(P-1)/P", lambda p, k: 4 * k * share(p)),
    ]
    rows = []
    for p in values(records, "ranks"):
        row = [p]
        for name, _, formula in columns:
            r = find(records, ranks=p, requested=name)
            words = (
                r and (max(r["sent_bytes_max"], r["recv_bytes_max"]) - 48 * r["messages_max"]) / 4
            )
            row.append(f"{words:,.0f} ({formula(p, r['k']):,.0f})" if r else "-")
        rows.append(row)
    table(["ranks"] + [f"`{name}` ({text})" for name, text, _ in columns], rows)
    if not plt:
        return
    figure = Figure("volumes", folder)
    for name, _, formula in columns:
        mine = [r for r in records if r["requested"] == name]
        figure.draw(
            figure.axes[0],
            [
                (
                    r["ranks"],
                    (max(r["sent_bytes_max"], r["recv_bytes_max"]) - 48 * r["messages_max"])
                    / 4
                    / r["k"],
                )
                for r in mine
            ],
            name,
            "o-",
        )
        figure.draw(
            figure.axes[0], [(r["ranks"], formula(r["ranks"], 1)) for r in mine], name, ":", ""
        )
    figure.finish(
        figure.axes[0],
        "ranks",
        "words / k, busiest rank",
        "Volume of a step (dotted: Ok-Topk's table 1)",
    )
    figure.save()


def balancing(records, folder):
    cases = ["naive", "regions only", "shares only", "both"]
    rows = []
    for p in values(records, "ranks"):
        mine = {r["case"]: r for r in records if r["ranks"] == p}
        rows.append(
            [p]
            + [
                f"{ms(mine[c]['median_s'])}, "
                f"{max(mine[c]['sent_bytes_max'], mine[c]['recv_bytes_max']) / 1e3:.0f}"
                for c in cases
            ]
            + [ratio(mine["naive"]["median_s"], mine["both"]["median_s"])]
        )
    table(["ranks"] + [f"{c}: ms, kB" for c in cases] + ["naive / both"], rows)
    if not plt:
        return
    figure = Figure("balancing", folder)
    for i, case in enumerate(cases):
        figure.draw(
            figure.axes[0],
            [(r["ranks"], 1e3 * r["median_s"]) for r in records if r["case"] == case],
            case,
            "o-",
            color=f"C{i}",
        )
    figure.finish(
        figure.axes[0],
        "ranks",
        "ms",
        "oktopk, large entries in a sixteenth of the indices, simulated 1 Gbit/s",
    )
    figure.save()


def block_sparse(records, folder):
    names = {
        "allgather": "AllGather",
        "split_allgather": "SparCML",
        "block": "OmniReduce",
        "s2": "S2",
    }
    rows, bars = [], []
    for platform in values(records, "case"):
        if " " in platform:
            continue
        mine = [r for r in records if r["case"].split()[0] == platform]
        base = find(mine, requested="allgather")["median_s"]
        for r in mine:
            parts = r["case"].split()
            label = names[r["requested"]] + (f", lambda {parts[1]}" if len(parts) > 1 else "")
            moved = max(r["sent_bytes_max"], r["recv_bytes_max"])
            rows.append(
                [
                    platform,
                    label,
                    ms(r["median_s"]),
                    ms(r["exchange_s"]),
                    f"{moved / 1e6:.2f}",
                    f"{r['collision_error']:.3f}" if r["requested"] == "s2" else "-",
                    ratio(base, r["median_s"]),
                ]
            )
            bars.append((platform, label, 1e3 * r["median_s"]))
    table(
        [
            "network",
            "method",
            "step, ms",
            "exchange, ms",
            "MB, busiest rank",
            "collision error",
            "to AllGather",
        ],
        rows,
    )
    if not plt:
        return
    figure = Figure("block_sparse", folder, len({b[0] for b in bars}))
    for axes, platform in zip(figure.axes, sorted({b[0] for b in bars})):
        mine = [b for b in bars if b[0] == platform]
        axes.barh(
            [b[1] for b in mine],
            [b[2] for b in mine],
            color=[COLORS[k] for b in mine for k, v in names.items() if b[1].startswith(v)],
        )
        axes.invert_yaxis()
        axes.set_xlabel("ms a step")
        axes.set_title(
            f"block-sparse gradient, {records[0]['ranks']} ranks, {platform}", fontsize=10
        )
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.save()


def scaling(records, folder):
    names = [
        n
        for n in ("oktopk", "spardl", "gtopk", "recursive_double", "allgather")
        if find(records, requested=n)
    ]
    rows = []
    for name in names:
        mine = sorted((r for r in records if r["requested"] == name), key=lambda r: r["ranks"])
        for r in mine:
            p, k = r["ranks"], r["selected"]
            moved = max(r["sent_bytes_max"], r["recv_bytes_max"])
            wire = moved / GIGABIT
            # Ok-Topk, table 1: the most that its authors' algorithm takes.
            model = (2 * p + 2 * math.log2(p)) * LATENCY + 6 * k * (p - 1) / p * 4 / GIGABIT
            first = max(mine[0]["sent_bytes_max"], mine[0]["recv_bytes_max"])
            rows.append(
                [
                    name,
                    p,
                    ms(r["median_s"]),
                    ms(wire),
                    ms(r["median_s"] - wire),
                    f"{moved / 1e3:.0f}",
                    f"{moved / first:.2f}x",
                    r["rounds"],
                    r["messages_max"],
                    ms(model) if name in ("oktopk", "spardl") else "-",
                ]
            )
    table(
        [
            "algorithm",
            "ranks",
            "time, ms",
            "bandwidth term, ms",
            "rest (latency), ms",
            "kB, busiest rank",
            "to the first row",
            "rounds",
            "messages",
            "Ok-Topk's formula, ms",
        ],
        rows,
    )
    if not plt:
        return
    figure = Figure("scaling", folder, 2)
    for name in names:
        mine = [r for r in records if r["requested"] == name]
        figure.draw(
            figure.axes[0],
            [
                (r["ranks"], 1e3 * max(r["sent_bytes_max"], r["recv_bytes_max"]) / GIGABIT)
                for r in mine
            ],
            name,
            "o-",
        )
        figure.draw(figure.axes[1], [(r["ranks"], 1e3 * r["median_s"]) for r in mine], name, "o-")
    ranks = values(records, "ranks")
    k = records[0]["selected"]
    figure.draw(
        figure.axes[1],
        [
            (p, 1e3 * ((2 * p + 2 * math.log2(p)) * LATENCY + 6 * k * (p - 1) / p * 4 / GIGABIT))
            for p in ranks
        ],
        "Ok-Topk's formula",
        "--",
        color="black",
    )
    figure.finish(
        figure.axes[0], "ranks", "ms", "Bandwidth term: bytes of the busiest rank / line rate"
    )
    figure.finish(figure.axes[1], "ranks", "ms", "Simulated time, 1 Gbit/s, N = 2^20, d = 1 %")
    figure.save()
