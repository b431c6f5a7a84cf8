"""Tests of the studies' own computations: python3 scripts/experiments.d/self_test.py"""
import tempfile
import unittest
from pathlib import Path

import choices
import ladder
import reconstruct
import sources
import unchanged
import stand_ins
import throughput
import verdicts
import waves
from applications import APPLICATIONS
from results import Results
from studies import SOURCES_OF
from workloads import WORKLOADS, random_workloads


class Ladder(unittest.TestCase):
    def test_finds_the_highest_scale_that_holds_to_a_third_of_a_percent(self):
        limits = {WORKLOADS[0]: 4321.0, WORKLOADS[1]: 33.0, WORKLOADS[2]: 1.0}
        found = ladder.highest_scales(list(limits), lambda asked: [scale <= limits[load] for load, scale in asked])
        self.assertLessEqual(found[0], 4321)
        self.assertGreater(found[0], 4321 / 1.003)
        self.assertGreater(found[1], 33 / 1.003)
        self.assertEqual(found[2], 0)

    def test_stops_at_the_first_failure(self):
        self.assertEqual(ladder.below_first_failure(0, [1, 2, 3, 4], [True, False, True, True]), 1)
        self.assertEqual(ladder.below_first_failure(7, [8, 9], [False, True]), 7)


class Limits(unittest.TestCase):
    def test_are_below_the_first_failure_and_at_the_last_success(self):
        class Failing(throughput.Study):
            def __init__(self, failing):
                self.failing = failing

            def good(self, workload, choice, highest, seed, rungs):
                return {rung: rung not in self.failing for rung in rungs}

        for failing, limits in ((set(), (64, 64)), (set(range(1, 65)), (0, 0)), (set(range(21, 41)), (20, 64)),
                                ({*range(14, 33), *range(60, 65)}, (13, 59)), ({64}, (63, 63))):
            self.assertEqual(Failing(failing).limits(None, None, 64, 1), limits)


class Workloads(unittest.TestCase):
    def test_rates_add_up_to_the_scale(self):
        for load in WORKLOADS + random_workloads(20):
            self.assertAlmostEqual(sum(load.at(1000)), 1000)
        self.assertEqual(random_workloads(20), random_workloads(20))

    def test_a_request_of_game_makes_seven_calls_and_one_of_traffic_three(self):
        calls = {name: sum(call.count for call in one.calls) for name, one in APPLICATIONS.items()}
        self.assertEqual(calls, {"game": 7, "traffic": 3})


class Waves(unittest.TestCase):
    def test_the_second_wave_is_higher_and_both_end_where_they_began(self):
        heights = [waves.rate_at(time_s, 1.0, 0) for time_s in range(waves.SECONDS)]
        self.assertAlmostEqual(heights[0], waves.TROUGH)
        self.assertAlmostEqual(heights[1300], waves.TROUGH)
        self.assertAlmostEqual(max(heights[:1300]), 0.6, places=3)
        self.assertAlmostEqual(max(heights), 1.0, places=3)


class Page(unittest.TestCase):
    def test_tables_go_between_their_markers_and_nothing_else_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "README.md"
            two = "<!-- table two -->\nkept\n<!-- end -->\n"
            page.write_text(f"before\n<!-- table one -->\nold\n<!-- end -->\nafter\n{two}", encoding="utf-8")
            results = Results(folder)
            results.table("one", ["name", "number"], [["a", 1]])
            results.fill_pages()
            self.assertEqual(page.read_text(encoding="utf-8"),
                             "before\n<!-- table one -->\n| name | number |\n|---|--:|\n| a | 1 |\n"
                             f"<!-- end -->\nafter\n{two}")


    def test_values_go_into_their_sentences(self):
        with tempfile.TemporaryDirectory() as folder:
            results = Results(folder)
            results.value("share", "12 %")
            self.assertEqual(results.filled("a <!--=share-->old<!--/--> b <!--=other-->kept<!--/-->"),
                             "a <!--=share-->12 %<!--/--> b <!--=other-->kept<!--/-->")


class Settings(unittest.TestCase):
    def test_raised_rates_are_the_99th_percentile_of_a_seconds_arrivals(self):
        # Tables of the Poisson distribution: 18 at a mean of 10, 124 at 100.
        self.assertEqual([choices.raised_rate(rate) for rate in (0, 10, 100)], [0, 18, 124])
        self.assertAlmostEqual(choices.raised_rate(1000), 1100)


class StandIns(unittest.TestCase):
    def test_objectives_are_those_of_the_paper(self):
        rows = stand_ins.read_rows("profiles/reference-gpu/latency.csv")
        made = [row for row in stand_ins.renamed(rows, stand_ins.factors(rows))
                if (row["batch"], row["partition"]) == ("32", "100")]
        of = {row["model"]: float(row["latency_ms"]) for row in made}
        self.assertEqual(set(of), set(stand_ins.MODELS))
        for model, one in stand_ins.MODELS.items():
            self.assertAlmostEqual(2 * of[model], one.papers_slo_ms, places=3)


class Reconstruction(unittest.TestCase):
    def tables(self, **more):
        with tempfile.TemporaryDirectory() as folder:
            reconstruct.write_tables(folder, **more)
            return {name: stand_ins.read_rows(Path(folder, f"{name}.csv")) for name in ("latency", "utilization", "interference")}

    def latencies(self, **more):
        return {(row["model"], int(row["batch"]), int(row["partition"])): float(row["latency_ms"])
                for row in self.tables(**more)["latency"]}

    def test_a_batch_of_32_takes_half_of_the_objective_in_table_3(self):
        for curve in reconstruct.CURVES:
            made = self.latencies(curve=curve)
            for model, slo_ms in reconstruct.OBJECTIVES_MS.items():
                self.assertAlmostEqual(2 * made[model, 32, 100], slo_ms, places=6)

    def test_larger_batches_and_smaller_shares_take_no_less_time(self):
        for seed in (1, 2, 3):
            made = self.latencies(seed=seed)
            for (model, batch, size), ms in made.items():
                self.assertTrue(all(ms <= made[model, larger, size] for larger in (2, 4, 8, 16, 32) if larger > batch))
                self.assertTrue(all(ms <= made[model, batch, less] for less in reconstruct.SIZES if less < size))

    def test_the_curve_of_figure_4_is_steep_for_large_batches_and_nearly_flat_for_small_ones(self):
        made = self.latencies()
        for model in ("googlenet", "resnet50", "ssd-mobilenetv1", "vgg16"):
            steep, flat = (made[model, batch, 20] / made[model, batch, 100] for batch in (32, 1))
            self.assertGreater(steep, 1.1 * flat)

    def test_a_model_of_slowdowns_by_hand(self):
        self.assertAlmostEqual(reconstruct.slowdown((0, 0), (0, 0)), 0.8953693917277343)
        self.assertAlmostEqual(reconstruct.slowdown((1, 0), (0, 1)) - reconstruct.slowdown((0, 0), (0, 0)),
                               0.11290838746224496 + 0.0882038259888065)

    def test_the_profile_in_the_repository_is_what_the_script_makes(self):
        for name, rows in self.tables().items():
            kept = stand_ins.read_rows(reconstruct.PROFILE / f"{name}.csv")

            def key(row):
                return tuple(value for column, value in row.items() if column in (
                    "model", "batch", "partition", "other_model", "other_batch", "other_partition"))

            def figures(row):
                return [float(value) for column, value in row.items() if column.endswith(("_ms", "_util")) and value]

            self.assertEqual({key(row): figures(row) for row in kept}, {key(row): figures(row) for row in rows})


class Gains(unittest.TestCase):
    def test_are_those_of_each_seed_without_workloads_of_which_the_baseline_keeps_none(self):
        loads = WORKLOADS[:3]
        kept = {(load.name, "ours"): [200.0, 400.0] for load in loads} | {
            (load.name, "other"): [100.0, 100.0] for load in loads[:2]} | {(loads[2].name, "other"): [0.0, 100.0]}
        found = throughput.gain(kept, "ours", "other", loads)
        self.assertEqual([round(gain, 6) for gain in found.by_seed], [1, 3])
        self.assertEqual(found.left_out, (loads[2].name,))
        self.assertEqual(found.verdict(0.5), verdicts.CONFIRMED)
        self.assertEqual(found.verdict(3.0), verdicts.WEAKER)

    def test_have_no_verdict_beside_a_baseline_that_keeps_nothing(self):
        kept = {(WORKLOADS[0].name, name): [rate] for name, rate in (("ours", 100.0), ("other", 0.0))}
        self.assertEqual(throughput.gain(kept, "ours", "other", WORKLOADS[:1]).verdict(0.5), verdicts.NOT_TESTABLE)


class Verdicts(unittest.TestCase):
    def test_name_the_curves_that_they_depend_on(self):
        confirmed, weaker = verdicts.CONFIRMED, verdicts.WEAKER
        self.assertEqual(verdicts.over_variants([confirmed, confirmed], [confirmed]), confirmed)
        self.assertEqual(verdicts.over_variants([confirmed, weaker], [weaker]), weaker)
        self.assertIn(weaker, verdicts.over_variants([confirmed], [weaker, confirmed]))

    def test_follow_the_figures(self):
        self.assertEqual([verdicts.more(ours, 0.6) for ours in (0.7, 0.55, 0.2, -0.1)],
                         [verdicts.CONFIRMED, verdicts.CONFIRMED, verdicts.WEAKER, verdicts.NOT_CONFIRMED])
        self.assertEqual([verdicts.less(ours, 0.02, 0.25) for ours in (0.02, 0.1, 0.3)],
                         [verdicts.CONFIRMED, verdicts.WEAKER, verdicts.NOT_CONFIRMED])


class Sources(unittest.TestCase):
    def test_comments_and_layout_do_not_count(self):
        one = 'int a = 1;  // one\n/* two */ const char* b = "// kept";\n'
        other = 'int a = 1;\nconst char* b = "// kept";'
        changed = 'int a = 2;\nconst char* b = "// kept";'
        with tempfile.TemporaryDirectory() as folder:
            contents = []
            for number, text in enumerate((one, other, changed)):
                file = Path(folder) / f"{number}.cc"
                file.write_text(text, encoding="utf-8")
                contents.append(sources.content(file).strip())
        self.assertEqual(contents[0], contents[1])
        self.assertNotEqual(contents[0], contents[2])

    def test_the_digest_changes_with_a_file_of_the_group(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src/schedule").mkdir(parents=True)
            (root / "src/serve").mkdir(parents=True)
            (root / "scripts/experiments.d").mkdir(parents=True)
            (root / "scripts/experiments.d/study.py").write_text("import other\n", encoding="utf-8")
            (root / "scripts/experiments.d/other.py").write_text("A = 1\n", encoding="utf-8")
            plan = root / "src/schedule/plan.cc"
            plan.write_text("int a;", encoding="utf-8")
            first = sources.digest("plans", "study", root)
            (root / "src/serve/core.cc").write_text("int b;", encoding="utf-8")
            self.assertEqual(sources.digest("plans", "study", root), first)
            plan.write_text("int c;", encoding="utf-8")
            second = sources.digest("plans", "study", root)
            self.assertNotEqual(second, first)
            (root / "scripts/experiments.d/other.py").write_text("A = 2\n", encoding="utf-8")
            self.assertNotEqual(sources.digest("plans", "study", root), second)

    def test_the_digest_changes_with_a_file_of_the_study_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "bench/mig").mkdir(parents=True)
            program = root / "bench/mig/search.cc"
            program.write_text("int a;", encoding="utf-8")
            first = {study: sources.digest("plans", study, root) for study in ("mig", "schedulable")}
            program.write_text("int b;", encoding="utf-8")
            self.assertNotEqual(sources.digest("plans", "mig", root), first["mig"])
            self.assertEqual(sources.digest("plans", "schedulable", root), first["schedulable"])

    def test_the_own_paths_of_a_study_exist(self):
        for study, paths in sources.PATHS_OF.items():
            self.assertIn(study, SOURCES_OF)
            for path in paths:
                self.assertTrue(Path(path).exists(), path)

    def test_only_files_of_the_commit_are_marked(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder)
            for name, digest in (("a", "0" * 16), ("b", "1" * 16)):
                (page / f"{name}.csv").write_text(f"# sources of waves: {digest}\n# made by hand\nx\n1\n", encoding="utf-8")
            found = unchanged.made_then({"waves": "0" * 16}, page)
            self.assertEqual(found, {"waves": [page / "a.csv"]})
            unchanged.mark("waves", found["waves"])
            self.assertEqual([file.name for file, _, _ in unchanged.stale(page)], ["b.csv"])
            self.assertEqual(unchanged.rows_of(page)["a.csv"], ["x", "1"])


if __name__ == "__main__":
    unittest.main()
