#!/usr/bin/python3
"""Draws the series that bench_serve_waves writes: picture_of_waves.py SERIES.csv PICTURE.svg

Four panels, as in gpulet figure 15: load of each model, devices in use, sum of the shares, violations.
"""
import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of backend)

plt.rcParams.update({"svg.hashsalt": "gpulet", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                     "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e5e5e5",
                     "axes.axisbelow": True, "legend.frameon": False, "figure.facecolor": "white"})


def read(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(opened)]


def draw(rows, file):
    times = [row["time_s"] for row in rows]
    models = [name for name in rows[0] if name.startswith("rate_")]
    drawing, axes = plt.subplots(4, 1, figsize=(9, 8), sharex=True, constrained_layout=True)
    axes[0].stackplot(times, [[row[model] for row in rows] for model in models],
                      labels=[model.removeprefix("rate_") for model in models], colors=plt.get_cmap("tab20").colors)
    axes[0].set_ylabel("load, requests/s")
    axes[0].legend(loc="upper left", fontsize=8)
    axes[1].step(times, [row["devices"] for row in rows], where="post", color="#3182bd", label="in use")
    axes[1].step(times, [row["devices_needed"] for row in rows], where="post", color="#b5b5b5",
                 label="of a plan made anew for the rate of the moment")
    axes[1].set_ylabel("devices")
    axes[1].set_ylim(0, None)
    axes[1].legend(loc="upper left", fontsize=8)
    axes[2].step(times, [row["share_percent"] for row in rows], where="post", color="#3182bd")
    axes[2].set_ylabel("sum of shares, %")
    axes[2].set_ylim(0, None)
    bad = [100 * (row["dropped"] + row["late"] + row["errors"]) / max(row["offered"], 1) for row in rows]
    axes[3].plot(times, bad, color="#d95f0e")
    axes[3].axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes[3].set_ylim(0, max(1.2, *bad))
    axes[3].set_ylabel("violations, %")
    axes[3].set_xlabel("time, s")
    drawing.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(read(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
