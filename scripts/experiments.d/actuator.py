"""How exactly a share of CPUs is granted: requested and used cores of a process that is always busy. Not in the papers."""
import subprocess
from pathlib import Path

from files import read_csv
from program import ENVIRONMENT, ProgramFailed

NAME = "actuator"
FLAGS = ("--seconds", "2", "--rounds", "2")


def run(measured, runner, results, quick):
    if quick:
        print(f"    {NAME}: skipped; it takes real time, and needs an idle machine", flush=True)
        return
    out = Path(measured.work) / "actuator.csv"
    command = [str(Path(measured.gpulet).parent / "bench_actuator"), *FLAGS, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        raise ProgramFailed(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
    rows = read_csv(out)
    results.csv("actuator.csv", [f"scripts/experiments --only {NAME}", f"bench_actuator {' '.join(FLAGS)} --out FILE"],
                list(rows[0]), [row.values() for row in rows])
    asked = sorted({float(row["cores_asked"]) for row in rows})
    lines = []
    for mechanism in dict.fromkeys(row["mechanism"] for row in rows):
        line = [mechanism]
        for cores in asked:
            used = [float(row["cores_used"]) for row in rows
                    if (row["mechanism"], float(row["cores_asked"])) == (mechanism, cores)]
            line.append(f"{min(used):.4g}" if len(used) == 1 else f"{min(used):.4g} to {max(used):.4g}")
        lines.append(line)
    results.table("actuator", ["requested cores", *(f"{cores:g}" for cores in asked)], lines)
    results.value("actuator_delay", f"{max(float(row['shows_after_ms']) for row in rows):.0f} ms")
