// The way out where nothing can be created in its place and nothing can go: instances elsewhere,
// for a while, that stand in for what is in the way (the extra devices of MIG-serving, section 6).
// Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "mig/transition_scene.h"

namespace gpulet::mig {

struct DetourOptions {
  std::size_t most_extra_devices = 0;  // in use at once
  std::size_t effort = 400;            // trials before a plan gives up looking for room
};

class Detours {
 public:
  explicit Detours(const DetourOptions& options)
      : most_extra_devices_(options.most_extra_devices), effort_left_(options.effort) {}

  // Stages after which at least one more of `to` can be created; the first one frees as many places
  // as there is room to stand in for. Nothing where no way was found.
  // REQUIRES: the scene is at the beginning of a stage.
  [[nodiscard]] std::optional<std::vector<Step>> find(const Scene& scene);

 private:
  using Steps = std::optional<std::vector<Step>>;

  [[nodiscard]] bool stand_in_for(Scene& scene, const Site& site,
                                  const std::vector<Site>& kept_free) const;
  [[nodiscard]] std::optional<Standing> choose(const Scene& scene, std::uint32_t service,
                                               const std::vector<Standing>& replaced,
                                               const std::vector<Site>& kept_free) const;
  [[nodiscard]] Steps make_way(const Scene& scene, const Site& site, std::vector<Site> kept_free,
                               int moves_before);

  std::size_t most_extra_devices_;
  std::size_t effort_left_;
};

// A stage that moves everything that is in the way to a like device that neither deployment uses,
// each device's to one of its own: always possible with as many of them. Nothing where there are
// too few. REQUIRES: no stand-ins.
[[nodiscard]] std::optional<Step> move_to_spares(const Scene& scene);

}  // namespace gpulet::mig
