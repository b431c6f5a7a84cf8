"""Plans for the day and the night of five measured models, and the actions between them: MIG-serving figure 13(b)."""
import pictures
from mig_setup import AS_PUBLISHED, COLOURS, LARGEST_BATCH, PROFILES, SLO_MS, cluster, demand

# The paper's testbed serves roberta-large, bert-base-uncased, albert-large-v2, resnet101 and resnet50; the paper gives
# no rates. The measurements have bert and the ResNets; vgg19 and densenet201 take the places of the other two. The
# rates need 16 devices by day and 5 by night with the planner's defaults, as many as the paper's.
DAY = {"bert": 491, "resnet101": 5358, "resnet50": 10736, "vgg19": 4863, "densenet201": 4977}
NIGHT = {"bert": 118, "resnet101": 1822, "resnet50": 3006, "vgg19": 1556, "densenet201": 1394}
# name -> (times these rates, nodes of eight devices)
SITES = {"the paper's size": (1.0, 3), "large": (2.2, 6)}
SETTINGS = {"as published": AS_PUBLISHED, "defaults": ()}
KINDS = {"created": "create", "removed": "delete", "migrated_within_nodes": "migrate within a node",
         "migrated_across_nodes": "migrate across nodes", "repartitions": "repartition"}


def slug(name):
    return name.replace(" ", "-").replace("'", "")


class Site:
    """The input files of one size."""

    def __init__(self, setup, name, scale, nodes):
        self.setup, self.name, self.devices = setup, name, 8 * nodes
        self.folder = f"site-{slug(name)}"
        self.rates = {"day": {model: scale * rate for model, rate in DAY.items()},
                      "night": {model: scale * rate for model, rate in NIGHT.items()}}
        self.cluster = setup.folder.write_json(f"{self.folder}/cluster.json", cluster(8, nodes))
        self.demands = {when: setup.folder.write_json(f"{self.folder}/{when}.json",
                                                      demand(rates, SLO_MS, LARGEST_BATCH))
                        for when, rates in self.rates.items()}

    def path(self, name):
        return self.setup.path(f"{self.folder}/{name}")

    def inputs(self, when):
        return ["--cluster", self.cluster, "--profiles", PROFILES, "--demand", self.demands[when], "--policy",
                "mig-two-phase"]

    def plan(self, when, flags):
        found = self.setup.gpulet_json("schedule", *self.inputs(when), *flags)
        return found, self.setup.folder.write_json(f"{self.folder}/plan-{when}.json", found)

    def transition(self, plans, before, after):
        return self.setup.gpulet_json("transition", "--from", plans[before][1], "--to", plans[after][1], "--cluster",
                                      self.cluster)


def instances_of(plan):
    return len({(gpulet["node"], gpulet["device"], gpulet["start"]) for gpulet in plan["gpulets"]})


def least_kept(site, document, before, after):
    """The least rate of any model during the transition over the smaller of its two required rates."""
    return min(stage["least_rate"][model] / min(site.rates[before][model], site.rates[after][model])
               for stage in document["stages"] for model in DAY)


class Transition:
    def __init__(self, site, name, document, plans, before, after):
        self.site, self.name = site.name, name
        self.counts, self.stages = document["counts"], len(document["stages"])
        self.extra = document["extra_devices"]
        self.instances = {when: instances_of(plans[when][0]) for when in plans}
        self.devices = {when: plans[when][0]["devices_used"] for when in plans}
        self.kept = least_kept(site, document, before, after)


def transitions(setup, sites):
    found = []
    for site in sites:
        plans = {when: site.plan(when, SETTINGS["defaults"]) for when in ("day", "night")}
        for before, after in (("day", "night"), ("night", "day")):
            found.append(Transition(site, f"{before}2{after}", site.transition(plans, before, after), plans, before,
                                    after))
    setup.results.csv("mig_actions.csv", [
        "scripts/experiments --only mig",
        f"gpulet schedule --cluster CLUSTER (a100-80, no 3g beside 4g) --profiles {PROFILES} --demand (rates of "
        f"mig_transition.py, slo_ms {SLO_MS:g}, max_batch {LARGEST_BATCH}) --policy mig-two-phase --json",
        "gpulet transition --from PLAN --to PLAN --cluster CLUSTER --json"],
        ["site", "transition", "day_devices", "day_instances", "night_devices", "night_instances", "stages",
         "extra_devices", "least_rate_of_required", *KINDS],
        [[one.site, one.name, one.devices["day"], one.instances["day"], one.devices["night"], one.instances["night"],
          one.stages, one.extra, round(one.kept, 6), *(one.counts[kind] for kind in KINDS)] for one in found])
    setup.results.table("mig_actions", ["", "devices", "instances", "stages", "extra devices", *KINDS.values(),
                                        "least rate of required"],
                        [[f"{one.site}, {one.name}",
                          " to ".join(str(one.devices[when]) for when in one.name.split("2")),
                          " to ".join(str(one.instances[when]) for when in one.name.split("2")), one.stages, one.extra,
                          *(one.counts[kind] for kind in KINDS), f"{100 * one.kept:.1f} %"] for one in found])
    return found


def draw_actions(setup, found):
    sites = list(dict.fromkeys(one.site for one in found))
    drawing, plots = pictures.figure(1, len(sites), width=9, height=2.7, squeeze=False)
    names = [name.replace(" within", ",\nwithin").replace(" across", ",\nacross") for name in KINDS.values()]
    for axes, site in zip(plots[0], sites):
        of_site = [one for one in found if one.site == site]
        pictures.grouped_bars(axes, names, [one.name for one in of_site],
                              {one.name: [one.counts[kind] for kind in KINDS] for one in of_site}, COLOURS)
        axes.set_title(site)
        axes.tick_params(axis="x", labelsize=7)
    plots[0][0].set_ylabel("actions")
    plots[0][0].legend(loc="upper right", fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_actions"))


def sites_of(setup):
    return [Site(setup, name, *size) for name, size in SITES.items()]


def run(setup):
    found = transitions(setup, sites_of(setup))
    draw_actions(setup, found)
    return found
