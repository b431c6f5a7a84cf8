// How a training went, as a table and as a picture. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "gpulet/train/training.h"

namespace gpulet::train {

// CSV: a line of names, then one an episode.
[[nodiscard]] std::string curve_csv(std::span<const EpisodeFigures> episodes);

// SVG: reward, violations and throughput over the episodes, each an episode's own and the mean of
// those around it.
[[nodiscard]] std::string curve_svg(std::span<const EpisodeFigures> episodes);

}  // namespace gpulet::train
