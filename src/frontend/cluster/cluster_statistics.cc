#include "frontend/cluster/cluster_statistics.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace gpulet::frontend {
namespace {

void add(DurationCount& sum, const DurationCount& more) {
  sum.count += more.count;
  sum.ns += more.ns;
}

// Both by ascending size.
void add(std::vector<BatchCount>& sum, const std::vector<BatchCount>& more) {
  for (const BatchCount& one : more) {
    auto at = std::ranges::lower_bound(sum, one.batch_size, {}, &BatchCount::batch_size);
    if (at == sum.end() || at->batch_size != one.batch_size)
      at = sum.insert(at, {.batch_size = one.batch_size});
    add(at->compute_input, one.compute_input);
    add(at->compute_infer, one.compute_infer);
    add(at->compute_output, one.compute_output);
  }
}

void add(InferenceStatistics& sum, const InferenceStatistics& more) {
  sum.last_inference_ms = std::max(sum.last_inference_ms, more.last_inference_ms);
  sum.inference_count += more.inference_count;
  sum.execution_count += more.execution_count;
  add(sum.success, more.success);
  add(sum.fail, more.fail);
  add(sum.queue, more.queue);
  add(sum.compute_input, more.compute_input);
  add(sum.compute_infer, more.compute_infer);
  add(sum.compute_output, more.compute_output);
  add(sum.batches, more.batches);
}

}  // namespace

void add_statistics(InferenceStatistics& sum, const InferenceStatistics& more) { add(sum, more); }

void add_statistics(std::vector<InferenceStatistics>& sum,
                    const std::vector<InferenceStatistics>& more) {
  std::map<std::string_view, InferenceStatistics*> by_name;
  for (InferenceStatistics& one : sum) by_name.emplace(one.name, &one);
  for (const InferenceStatistics& one : more) {
    const auto found = by_name.find(one.name);
    if (found != by_name.end()) add(*found->second, one);
  }
}

void ClusterStatistics::add(const std::string& model, Statistics own, OnStatistics done) {
  const auto summed = [](const Statistics& mine, const Others& others) {
    std::vector<InferenceStatistics> sum = *mine;
    for (const auto& one : others) add_statistics(sum, one);
    return std::make_shared<const std::vector<InferenceStatistics>>(std::move(sum));
  };
  if (!model.empty()) {
    return ask_(model, [own = std::move(own), done = std::move(done),
                        summed](const Others& others) { done(summed(own, others)); });
  }
  if (own == own_ && sum_ != nullptr) return done(sum_);
  const bool asking = sum_ == nullptr && !waiting_.empty();
  waiting_.push_back(std::move(done));
  if (asking) return;
  own_ = std::move(own);
  sum_ = nullptr;
  ask_(model, [this, summed](const Others& others) {
    sum_ = summed(own_, others);
    for (const OnStatistics& one : std::exchange(waiting_, {})) one(sum_);
  });
}

}  // namespace gpulet::frontend
