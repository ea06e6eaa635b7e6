"""Tables and plots of what SparCML shows."""

from figures import Figure, find, ms, percent, plt, ratio, seconds, table, values


def fill_in(records, folder):
    groups = sorted({(r["model"], r["of"]) for r in records}, reverse=True)
    ranks = values(records, "ranks")
    rows = []
    for model, of in groups:
        mine = [r for r in records if (r["model"], r["of"]) == (model, of)]
        for density in values(mine, "density"):
            line = [r for r in mine if r["density"] == density]
            rows.append(
                [model, of, percent(density), percent(line[0]["selected"])]
                + [
                    "{} ({})".format(
                        percent(find(line, ranks=p)["union"]),
                        percent(find(line, ranks=p)["uniform"]),
                    )
                    for p in ranks
                    if p > 1
                ]
            )
    table(["model", "top-k of", "k/N", "not 0"] + [f"P = {p}" for p in ranks if p > 1], rows)
    if not plt:
        return
    figure = Figure("fill_in", folder, len(groups))
    for axes, (model, of) in zip(figure.axes, groups):
        mine = [r for r in records if (r["model"], r["of"]) == (model, of)]
        for i, density in enumerate(values(mine, "density")):
            line = [r for r in mine if r["density"] == density]
            figure.draw(
                axes,
                [(r["ranks"], 100 * r["union"]) for r in line],
                percent(density),
                "o-",
                color=f"C{i}",
            )
            figure.draw(
                axes, [(r["ranks"], 100 * r["uniform"]) for r in line], "", ":", "", color=f"C{i}"
            )
        figure.finish(
            axes,
            "ranks",
            "entries of the sum, % of N",
            f"{model}: {of}\n(dotted: uniform supports)",
        )
    figure.save()


def time_ranks(records, folder):
    names = ["mpi", "recursive_double", "split_allgather", "dsar", "ring", "allgather", "auto"]
    platforms, ranks = values(records, "case"), values(records, "ranks")
    for platform in platforms:
        mine = [r for r in records if r["case"] == platform]
        print(f"\n{platform}, ms:\n")
        table(
            ["ranks"] + names + ["auto: chosen", "mpi / auto"],
            [
                [p]
                + [ms(seconds(mine, ranks=p, requested=n)) for n in names]
                + [
                    (find(mine, ranks=p, requested="auto") or {}).get("algorithm", "-"),
                    ratio(
                        seconds(mine, ranks=p, requested="mpi"),
                        seconds(mine, ranks=p, requested="auto"),
                    ),
                ]
                for p in ranks
            ],
        )
    if not plt:
        return
    figure = Figure("time_ranks", folder, len(platforms))
    for axes, platform in zip(figure.axes, platforms):
        for name in names:
            points = [
                (r["ranks"], 1e3 * r["median_s"])
                for r in records
                if r["case"] == platform and r["requested"] == name
            ]
            figure.draw(
                axes,
                points,
                name,
                "o--" if name == "auto" else "o-",
                "auto, coded" if name == "auto" else name,
            )
        figure.finish(
            axes, "ranks", "ms", f"{platform}, simulated: N = {records[0]['dim']:,}, d = 0.781 %"
        )
    figure.save()


def time_density(records, folder):
    names = ["mpi", "recursive_double", "split_allgather", "dsar", "ring", "allgather"]
    raw = [r for r in records if r["case"] == "raw"]
    extra = ["auto", "4 bits"]
    rows = []
    for d in values(raw, "density"):
        row = [percent(d)] + [ms(seconds(raw, density=d, requested=n)) for n in names]
        for case in extra:
            mine = [r for r in records if r["case"] == case]
            ours, base = seconds(mine, density=d, requested="auto"), seconds(
                mine, density=d, requested="mpi"
            )
            row.append(f"{ms(ours)} ({ratio(base, ours)})")
        rows.append(row)
    table(["density"] + names + ["auto (to mpi)", "auto, 4 bits (to mpi)"], rows)
    if not plt:
        return
    figure = Figure("time_density", folder)
    axes = figure.axes[0]
    for name in names:
        figure.draw(
            axes,
            [(100 * r["density"], 1e3 * r["median_s"]) for r in raw if r["requested"] == name],
            name,
            "o-",
        )
    for case, color in zip(extra, ("#0a7f5a", "#86bcb6")):
        figure.draw(
            axes,
            [
                (100 * r["density"], 1e3 * r["median_s"])
                for r in records
                if r["case"] == case and r["requested"] == "auto"
            ],
            case,
            "o--",
            "auto, coded" if case == "auto" else "auto, 4 bits a value",
            color,
        )
    figure.finish(
        axes,
        "non-zeros per rank, % of N",
        "ms",
        f"{raw[0]['ranks']} emulated hosts, N = {raw[0]['dim']:,}",
    )
    axes.set_xticks(
        [100 * d for d in values(raw, "density")],
        [f"{100 * d:.3g}" for d in values(raw, "density")],
    )
    figure.save()


def expected_union(records, folder):
    dims, ranks = values(records, "dim"), values(records, "ranks")
    worst = {}
    for dim in dims:
        mine = [r for r in records if r["dim"] == dim]
        rows = []
        for k in values(mine, "nnz_in"):
            row = [f"{k:,}"]
            for p in ranks:
                found = [r["nnz_out"] for r in mine if r["nnz_in"] == k and r["ranks"] == p]
                expected = dim * (1 - (1 - k / dim) ** p)
                if not found:
                    row.append("-")
                    continue
                mean = sum(found) / len(found)
                worst[dim] = max(worst.get(dim, 0), abs(mean / expected - 1))
                row.append(f"{mean:,.0f} ({expected:,.0f})")
            rows.append(row)
        print(
            f"\nN = {dim:,}: mean over seeds (formula); the largest error is "
            f"{percent(worst[dim])}\n"
        )
        table(["k"] + [f"P = {p}" for p in ranks], rows)
    if not plt:
        return
    figure = Figure("expected_union", folder, len(dims))
    for axes, dim in zip(figure.axes, dims):
        mine = [r for r in records if r["dim"] == dim]
        curve = range(1, ranks[-1] + 1)
        for i, k in enumerate(values(mine, "nnz_in")):
            figure.draw(
                axes,
                [(p, dim * (1 - (1 - k / dim) ** p)) for p in curve],
                f"k = {k:,}",
                "-",
                color=f"C{i}",
            )
            figure.draw(
                axes,
                [(r["ranks"], r["nnz_out"]) for r in mine if r["nnz_in"] == k],
                "",
                "o",
                "",
                color=f"C{i}",
            )
        figure.finish(
            axes, "ranks", "entries of the sum", f"N = {dim}: formula (lines), allreduce (dots)", ""
        )
    figure.save()


def dsar_ceiling(records, folder):
    bits_of = {0: 32}
    rows, lines = [], {}
    for p in values(records, "ranks"):
        for d in values(records, "density"):
            mine = [r for r in records if r["ranks"] == p and r["density"] == d]
            dense = seconds(mine, requested="mpi")
            dim = mine[0]["dim"]
            bytes_dense = 2 * (p - 1) / p * dim * 4
            bound = bytes_dense / (0.5 * dim * 4)  # lemma 5.2: delta words at least, kappa = 0.5
            row = [p, percent(d), percent(1 - (1 - d) ** p), f"{bound:.2f}x"]
            for bits in (0, 8, 4, 2):
                r = find(mine, requested="dsar", value_bits=bits)
                moved = max(r["sent_bytes_max"], r["recv_bytes_max"])
                row.append(f"{bytes_dense / moved:.2f}x, {dense / r['median_s']:.2f}x")
                lines.setdefault((p, bits), []).append((100 * d, dense / r["median_s"]))
            rows.append(row)
    table(
        ["ranks", "density", "of the sum", "ceiling"]
        + [f"{bits_of.get(b, b)} bits: bytes, time" for b in (0, 8, 4, 2)],
        rows,
    )
    if not plt:
        return
    p = 16 if 16 in values(records, "ranks") else values(records, "ranks")[-1]
    figure = Figure("dsar_ceiling", folder)
    axes = figure.axes[0]
    for i, bits in enumerate((0, 8, 4, 2)):
        figure.draw(
            axes, lines[p, bits], f"dsar, {bits_of.get(bits, bits)} bits", "o-", color=f"C{i}"
        )
    densities = [100 * d for d in values(records, "density")]
    figure.draw(
        axes,
        [(d, 4 * (p - 1) / p) for d in densities],
        "ceiling of sparsity alone",
        "--",
        color="black",
    )
    figure.finish(
        axes,
        "non-zeros per rank, % of N",
        "times faster than a dense allreduce",
        f"{p} ranks, simulated 1 Gbit/s, network only",
    )
    figure.save()
