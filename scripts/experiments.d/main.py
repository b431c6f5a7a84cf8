"""Runs the studies. scripts/experiments calls this and documents the arguments."""
import argparse
import sys
import time
from pathlib import Path

from measurements import Measurements, find_data
from program import ProgramFailed, Runner
from results import Results
from studies import SOURCES_OF, load, missing

WORK = Path("build/experiments")
PAGE = Path("docs/experiments")


def read_arguments():
    parser = argparse.ArgumentParser(prog="experiments", add_help=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--data")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=0)
    return parser.parse_args()


def choose(only):
    """The names of the studies, in the order in which they run."""
    names = [name for name in only.split(",") if name]
    for name in names:
        if name not in SOURCES_OF:
            raise ProgramFailed(f"--only {name}: there is no such study; choose of {', '.join(SOURCES_OF)}")
    return [name for name in SOURCES_OF if not names or name in names]


def load_all(chosen, named, programs):
    """The studies whose programs exist. A study that is named fails without them."""
    studies = []
    for name in chosen:
        absent = ", ".join(missing(name, programs))
        if not absent:
            studies.append(load(name))
        elif named:
            raise ProgramFailed(f"--only {name} needs {absent} in {programs}")
        else:
            print(f"==> {name}: left out, {absent} missing in {programs}", flush=True)
    return studies


def work_folder(arguments):
    """The folder for the inputs of the commands; a quick run has its own."""
    if not arguments.quick:
        return WORK
    return Path(arguments.out) / "inputs" if arguments.out else WORK / "quick"


def out_folder(arguments, measured, work):
    """The page describes the reference measurements in full; anything else goes to the build folder."""
    if arguments.out:
        return Path(arguments.out)
    return PAGE if measured.reference and not arguments.quick else work / "results"


def main():
    arguments = read_arguments()
    chosen = choose(arguments.only)
    if arguments.list:
        print("\n".join(chosen))
        return
    studies = load_all(chosen, bool(arguments.only), Path(arguments.bin))
    work = work_folder(arguments)
    measured = Measurements(find_data(arguments.data), Path(arguments.bin) / "gpulet", work)
    results = Results(out_folder(arguments, measured, work))
    print(f"==> {measured.folder}: {len(measured.latency)} models; results go to {results.folder}", flush=True)
    measured.long = arguments.long
    measured.import_profiles()
    runner = Runner(arguments.jobs)
    began = time.monotonic()
    for number, study in enumerate(studies, start=1):
        print(f"==> {study.NAME} ({number} of {len(studies)}): {study.__doc__.splitlines()[0]}", flush=True)
        study_began = time.monotonic()
        results.begin(study.NAME)
        study.run(measured, runner, results, arguments.quick)
        print(f"    done in {time.monotonic() - study_began:.0f} s", flush=True)
    results.fill_pages()
    print(f"experiments: {len(studies)} studies in {time.monotonic() - began:.0f} s, see {results.folder}", flush=True)


try:
    main()
except (ProgramFailed, OSError) as failure:
    print(f"experiments: {failure}", file=sys.stderr)
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)
