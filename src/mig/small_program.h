// A linear program of few unknowns: the largest objective * x with rows * x <= limits, x >= 0,
// where no limit is below 0, so that x = 0 is where it begins. The simplex method on a dense table,
// with Bland's rule, which cannot go round in circles. Pure; any thread.
#pragma once

#include <vector>

namespace gpulet::mig {

struct SmallProgram {
  std::vector<double> objective;
  std::vector<std::vector<double>> rows;
  std::vector<double> limits;
};

// Where the objective is largest, but for rounding. REQUIRES: it is bounded.
[[nodiscard]] std::vector<double> maximise(const SmallProgram& program);

}  // namespace gpulet::mig
