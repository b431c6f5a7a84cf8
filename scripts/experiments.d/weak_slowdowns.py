"""Profiles with slowdowns as small as in the papers: shows which results follow from what neighbours cost here."""
import stand_ins

# With this part of the measured slowdowns, nine of ten co-runs cost less than 18 %, as in gpulet figure 7.
PART = 0.25


def cell(row):
    return row["model"], row["batch"], row["partition"]


def weak_profiles(measured):
    """The folder of the imported profiles."""
    alone = {cell(row): float(row["latency_ms"]) for row in stand_ins.read_rows(measured.folder / "latency.csv")}
    rows = [{**row, "latency_ms": f"{alone[cell(row)] + PART * (float(row['latency_ms']) - alone[cell(row)]):.6g}"}
            for row in stand_ins.read_rows(measured.folder / "interference.csv") if cell(row) in alone]
    lines = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
    table = measured.write(f"weak-{measured.type}.csv", "\n".join(lines) + "\n")
    name = f"profiles-weak-{measured.type}"
    measured.import_profiles(interference=table, out=name)
    return measured.path(name)
