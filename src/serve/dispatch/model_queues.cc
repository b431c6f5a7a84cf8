#include "serve/dispatch/model_queues.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpulet::serve {

bool ModelQueues::empty() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& state) {
    return state == nullptr || (state->requests.empty() && state->suspects.empty());
  });
}

ModelIndex ModelQueues::add(ServedModel model) {
  if (free_.empty()) {
    free_.push_back(models_.size());
    models_.emplace_back();
    queues_.emplace_back();
  }
  const ModelIndex index = free_.back();
  free_.pop_back();
  models_[index] = std::move(model);
  queues_[index] = std::make_unique<ModelQueue>();
  of(index).requests.set_rules(models_[index].queue);
  return index;
}

bool ModelQueues::change(ModelIndex model, ServedModel changed) {
  models_[model] = std::move(changed);
  return of(model).requests.set_rules(models_[model].queue);
}

void ModelQueues::forget(ModelIndex model) {
  if (of(model).listed) std::erase(waiting_, model);
  // Moved, because an assignment would keep the strings' memory.
  { const ServedModel forgotten = std::move(models_[model]); }
  models_[model] = ServedModel();
  queues_[model].reset();
  free_.push_back(model);
}

bool ModelQueues::same_tensors(ModelIndex a, ModelIndex b) const {
  return take_same_requests(models_[a].inputs, models_[b].inputs) &&
         models_[a].outputs == models_[b].outputs;
}

std::optional<ModelIndex> ModelQueues::queue_for(ModelIndex model) const {
  if (of(model).heir) return of(model).heir;
  return of(model).closed.ok() ? std::optional(model) : std::nullopt;
}

Status ModelQueues::why_full(ModelIndex model, const Request& request) const {
  const auto full = [&](std::uint32_t most, const std::string& rest) -> Status {
    return {StatusCode::overloaded,
            fmt::format("model {}: {} requests{}; send slower", models_[model].name, most, rest)};
  };
  const batching::PendingRequests& requests = of(model).requests;
  if (requests.size() >= most_requests_) return full(most_requests_, " are waiting already");
  const batching::PriorityQueue* const levels = requests.levels();
  if (levels == nullptr || !levels->full_for(request)) return {};
  const std::uint32_t level = levels->rules().level_of(request.priority);
  const std::uint32_t most = levels->rules().policy_of(level).max_queue_size;
  return full(most, (level == 0 ? "" : fmt::format(" of priority {}", level)) +
                        " are waiting already, its max_queue_size");
}

void ModelQueues::list(ModelIndex model) {
  if (std::exchange(of(model).listed, true)) return;
  waiting_.push_back(model);
}

std::vector<Request> ModelQueues::take_all(ModelIndex model) {
  std::vector<Request> taken = of(model).requests.take_all();
  for (Request& request : of(model).suspects.take_due_before(kNever))
    taken.push_back(std::move(request));
  return taken;
}

std::vector<std::pair<ModelIndex, std::size_t>> ModelQueues::remove_client(ClientId client) {
  std::vector<std::pair<ModelIndex, std::size_t>> removed;
  std::erase_if(waiting_, [&](ModelIndex model) {
    ModelQueue& state = of(model);
    const std::size_t gone =
        state.requests.remove_client(client) + state.suspects.remove_client(client);
    if (gone > 0) removed.emplace_back(model, gone);
    state.listed = !state.requests.empty() || !state.suspects.empty();
    return !state.listed;
  });
  return removed;
}

bool ModelQueues::remove(ModelIndex model, ClientId client, std::uint64_t tag) {
  return of(model).requests.remove(client, tag) || of(model).suspects.remove(client, tag);
}

std::vector<ModelIndex> ModelQueues::unlist(const std::function<bool(ModelIndex)>& of_interest) {
  if (std::none_of(waiting_.begin(), waiting_.end(), of_interest)) return {};  // usually
  const auto kept = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [&](ModelIndex model) { return !of_interest(model); });
  std::vector<ModelIndex> leaving(kept, waiting_.end());
  waiting_.erase(kept, waiting_.end());
  for (const ModelIndex model : leaving) of(model).listed = false;
  return leaving;
}

}  // namespace gpulet::serve
