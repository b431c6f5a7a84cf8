"""MIG-serving: devices, savings, searches, and transitions between the plans of day and night."""
import mig_claims
import mig_cover
import mig_devices
import mig_measured
import mig_search
import mig_transition
from mig_setup import Setup

NAME = "mig"


def run(measured, runner, results, quick):
    setup = Setup(measured, runner, results, quick)
    devices = mig_devices.run(setup)
    mig_cover.run(setup)
    of_a100 = mig_measured.run(setup)
    mig_search.run(setup)
    transitions = mig_transition.run(setup)
    mig_claims.run(setup, devices, of_a100, transitions)
