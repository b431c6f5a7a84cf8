// Good devices for a state: those that MIG-serving's tree search goes on with (appendix A.2). Pure;
// any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/core/random.h"
#include "mig/fill.h"

namespace gpulet::mig {

// The best fillings of `services` services drawn at random of those that lack something: of each
// layout, for one of them, for two, and for all. At most `most`, best first, each once; of equals
// chance chooses. Empty where nothing lacks.
[[nodiscard]] std::vector<Filled> candidates(const Problem& problem,
                                             const std::vector<double>& rest,
                                             const std::vector<double>& worth, std::size_t services,
                                             std::size_t most, Random& random);

}  // namespace gpulet::mig
