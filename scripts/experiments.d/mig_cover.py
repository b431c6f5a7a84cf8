"""Devices that `cover` needs on the generated workloads, beside MIG-serving's optimiser."""
from mig_setup import AS_PUBLISHED, LARGEST_BATCH, READING_NAMES, READINGS, WORKLOADS

POLICIES = ("mig-two-phase", "cover")


def prepare(setup, reading):
    """Writes the generated models, the cluster and the demands; gives their folder."""
    folder = setup.path(f"generated-{reading}")
    setup.bench_csv("bench_mig_workload", "--out", folder, "--batch-ms", f"{READINGS[reading]:g}", "--largest-batch",
                    LARGEST_BATCH)
    setup.gpulet_json("profile", "import", "--name", "generated", "--latency", folder / "latency.csv", "--mig",
                      "a100-40", "--out", folder / "profiles")
    return folder


def run(setup):
    readings = list(READINGS)[:1] if setup.quick else list(READINGS)
    folders = {reading: prepare(setup, reading) for reading in readings}
    items = [(reading, load, policy) for reading in readings for load in WORKLOADS for policy in POLICIES]

    def work(item):
        reading, load, policy = item
        folder = folders[reading]
        return setup.gpulet_json("schedule", "--cluster", folder / "cluster.json", "--profiles", folder / "profiles",
                                 "--demand", folder / f"{load}.json", "--policy", policy, *AS_PUBLISHED,
                                 may_be_unschedulable=True)

    plans = dict(zip(items, setup.runner.map("mig, cover", work, items, lambda item: 3 if item[2] == "cover" else 1)))
    setup.results.csv("mig_cover.csv", [
        "scripts/experiments --only mig", "bench_mig_workload --out DIR --batch-ms (100: reading paper, 50: half) "
        f"--largest-batch {LARGEST_BATCH}",
        "gpulet profile import --name generated --latency DIR/latency.csv --mig a100-40 --out DIR/profiles",
        "gpulet schedule --cluster DIR/cluster.json --profiles DIR/profiles --demand DIR/WORKLOAD.json --policy POLICY "
        f"{' '.join(AS_PUBLISHED)} --json"], ["reading", "workload", "policy", "devices", "lower_bound", "schedulable"],
        [[*item, one["devices_used"], one.get("lower_bound", ""), one["schedulable"]] for item, one in plans.items()])
    rows = []
    for reading in readings:
        for policy in POLICIES:
            rows.append([f"{READING_NAMES[reading]}: `{policy}`",
                         *(plans[reading, load, policy]["devices_used"] for load in WORKLOADS)])
        rows.append([f"{READING_NAMES[reading]}: bound of `cover`",
                     *(plans[reading, load, "cover"]["lower_bound"] for load in WORKLOADS)])
    setup.results.table("mig_cover", ["", *WORKLOADS], rows)
