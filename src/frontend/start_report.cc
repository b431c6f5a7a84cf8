#include "start_report.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "gpulet/net/clock.h"

namespace gpulet::frontend {
namespace {

using serve::ModelState;
using serve::ModelStatus;

constexpr Duration kLookEvery = std::chrono::milliseconds(500);
constexpr std::size_t kMostNames = 5;

std::vector<const ModelStatus*> models_in(const serve::FrontendStatus& status, ModelState state) {
  std::vector<const ModelStatus*> found;
  for (const ModelStatus& model : status.models) {
    if (model.state == state) found.push_back(&model);
  }
  return found;
}

std::string names_of(const std::vector<const ModelStatus*>& models) {
  std::string names;
  for (std::size_t i = 0; i < models.size() && i < kMostNames; ++i)
    names += (i == 0 ? "" : ", ") + models[i]->name;
  return models.size() > kMostNames ? names + ", ..." : names;
}

}  // namespace

std::string waits_for(const serve::FrontendStatus& status) {
  const bool nobody = std::all_of(status.backends.begin(), status.backends.end(),
                                  [](const auto& backend) { return backend.second.node.empty(); });
  if (nobody) return "a backend: none is connected";
  if (status.epoch.value == 0) return "the first plan to come into force";
  const auto loading = models_in(status, ModelState::loading);
  if (loading.empty()) return {};
  return std::to_string(loading.size()) + " of " + std::to_string(status.models.size()) +
         " models to load: " + names_of(loading);
}

std::string serves_now(const serve::FrontendStatus& status) {
  const auto absent = models_in(status, ModelState::unavailable);
  const std::size_t all = status.models.size();
  std::string text = "serves " + std::to_string(all - absent.size()) + " of " +
                     std::to_string(all) + (all == 1 ? " model" : " models");
  if (absent.empty()) return text;
  return text + "; not " + names_of(absent) + " (" + absent.front()->name + ": " +
         absent.front()->reason + ")";
}

void StartReport::start() {
  timer_.set_after({}, [this] { look(); });
}

void StartReport::stop() {
  stopped_ = true;
  timer_.cancel();
}

void StartReport::look() {
  snapshots_.get([this](const StatusSnapshot& seen) {
    if (!stopped_) tell(*seen);
  });
}

void StartReport::tell(const TimedStatus& seen) {
  const std::string text = waits_for(seen.status);
  if (text.empty()) {
    spdlog::info("ready: {}", serves_now(seen.status));
    return;
  }
  if (text != told_) reminder_.reset();
  told_ = text;
  if (reminder_.due(net::now())) spdlog::info("waiting for {}", text);
  timer_.set_after(kLookEvery, [this] { look(); });
}

}  // namespace gpulet::frontend
