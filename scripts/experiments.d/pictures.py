"""The look of all plots, and how they are saved: the same bytes for the same data."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of backend)

COLOURS = {
    "static-equal": "#8c564b",
    "sbp": "#7f7f7f", "sbp-split": "#b5b5b5", "greedy-best-fit": "#c49c5a", "guided-self-tuning": "#e3c79b",
    "sbp-shipped": "#525252", "sbp-split+linear": "#b5b5b5", "elastic-shipped": "#fdae6b", "elastic-shipped+linear": "#a63603",
    "ideal-published": "#756bb1", "ideal-published+linear": "#756bb1",
    "elastic-preprint": "#9ecae1", "elastic-published": "#fd8d3c", "elastic-published+linear": "#d94801",
    "elastic": "#3182bd", "elastic+linear": "#6baed6", "elastic+learned": "#08519c", "ideal": "#756bb1",
    "cover": "#31a354", "cover+learned": "#006d2c",
    "auto": "#000000", "elastic-batch-search": "#6baed6", "igniter": "#e7298a", "roma": "#d62728",
    "none": "#d95f0e", "linear": "#fdae6b", "learned": "#3182bd", "measured": "#636363",
    "moderate": "#3182bd", "overload": "#d95f0e",
}
MODEL_COLOURS = plt.get_cmap("tab20").colors

plt.rcParams.update({
    "svg.hashsalt": "gpulet", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e5e5e5",
    "axes.axisbelow": True, "legend.frameon": False, "figure.facecolor": "white", "axes.titlesize": 10,
    "font.family": "DejaVu Sans",
})


def figure(rows=1, columns=1, width=9.0, height=3.2, **more):
    return plt.subplots(rows, columns, figsize=(width, height), constrained_layout=True, **more)


def save(drawing, file):
    drawing.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(drawing)


def grouped_bars(axes, groups, series, values, colours=COLOURS):
    """values[series][group]; None leaves a gap."""
    width = 0.8 / len(series)
    for place, name in enumerate(series):
        at = [group + (place - (len(series) - 1) / 2) * width for group in range(len(groups))]
        heights = [value if value is not None else 0 for value in values[name]]
        axes.bar(at, heights, width * 0.92, label=name, color=colours.get(name))
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
