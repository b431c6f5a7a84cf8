// ClusterStatistics: the statistics extension of the standard protocol for all frontends of a
// cluster: the counts of this one and of every other that answers. Single-strand.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpulet/net/kserve/host.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

// Adds the counts and times of `more`, of any name.
void add_statistics(InferenceStatistics& sum, const InferenceStatistics& more);
// Adds `more` to the entries of the same name in `sum`: counts and times add up, versions are those
// of `sum`, and the last inference is the latest. Models that `sum` lacks are left out.
void add_statistics(std::vector<InferenceStatistics>& sum,
                    const std::vector<InferenceStatistics>& more);

class ClusterStatistics {
 public:
  using Statistics = net::kserve::ProtocolHost::Statistics;
  using OnStatistics = net::kserve::ProtocolHost::OnStatistics;
  using Others = std::vector<std::vector<InferenceStatistics>>;  // one for each that answered

  // Asks the other frontends for their statistics of a model; an empty name: of all.
  using AskOthers = std::function<void(const std::string& model, std::function<void(Others)> done)>;

  explicit ClusterStatistics(AskOthers ask) : ask_(std::move(ask)) {}

  // Adds the others' statistics to `own`. Calls with the same `own` of all models share one result.
  void add(const std::string& model, Statistics own, OnStatistics done);

 private:
  const AskOthers ask_;
  Statistics own_;  // the last one of all models; null: none
  Statistics sum_;  // of all frontends; null while they are asked
  std::vector<OnStatistics> waiting_;
};

}  // namespace gpulet::frontend
