// AwaitedLoads: calls that loaded models and are answered once it is decided what came of it: the
// models serve, or one of them does not, and why. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/serve/messages.h"

namespace gpulet::frontend {

class AwaitedLoads {
 public:
  using OnDecided = std::function<void(serve::ModelsChanged)>;
  static constexpr std::size_t kMost = 256;  // at once; a call beyond is refused
  static constexpr Duration kLongest = std::chrono::seconds(120);
  static constexpr Duration kBetweenLooks = std::chrono::milliseconds(10);

  // `meant`: the models, as they are right after the change.
  void add(const std::vector<serve::ModelInfo>& meant, Time now, OnDecided done);
  // Answers those that are decided by now, and those that took too long. Looks at most every
  // kBetweenLooks, so that it may be called at every event.
  void settle(const serve::FrontendCore& core, Time now);
  // Answers all.
  void end(const Status& why);

 private:
  struct Wanted {
    std::string name;
    std::string version;
  };
  struct Load {
    std::vector<Wanted> models;
    Time until{};
    OnDecided done;
  };
  // Nothing: it is not decided.
  [[nodiscard]] static std::optional<Status> decide(const Load& load,
                                                    const std::vector<serve::ModelInfo>& now);

  std::vector<Load> loads_;
  Time next_look_{};
};

}  // namespace gpulet::frontend
