"""Tests of the studies' own computations: python3 scripts/experiments.d/self_test.py"""
import tempfile
import unittest
from pathlib import Path

import ladder
import waves
from results import Results
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


class Workloads(unittest.TestCase):
    def test_rates_add_up_to_the_scale(self):
        for load in WORKLOADS + random_workloads(20):
            self.assertAlmostEqual(sum(load.at(1000)), 1000)
        self.assertEqual(random_workloads(20), random_workloads(20))


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
            results.fill_page()
            self.assertEqual(page.read_text(encoding="utf-8"),
                             "before\n<!-- table one -->\n| name | number |\n|---|--:|\n| a | 1 |\n"
                             f"<!-- end -->\nafter\n{two}")


if __name__ == "__main__":
    unittest.main()
