// ModelQueues: the versions of models that are dispatched, and the requests that wait for each. A
// version is a model of its own here. Where one was replaced, its requests go to its heir, or are
// answered. Others only read it. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/batching/request_queue.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/serve/values/served_model.h"
#include "serve/dispatch/gpulet_route.h"

namespace gpulet::serve {

struct ModelQueue {
  // A request during which a process crashed or hung waits to run alone.
  void push(Request&& request) {
    if (request.crashes > 0) return suspects.push(std::move(request));
    requests.push(std::move(request));
  }

  batching::PendingRequests requests;
  batching::DeadlineQueue suspects;  // each runs alone (Retries)
  std::string lost;                  // why the last of them became a suspect
  std::optional<ModelIndex> heir;    // takes requests that come back
  Status closed;                     // why none does; ok: its own gpulets may
  bool listed = false;               // among those with waiting requests
};

class ModelQueues {
 public:
  // A request is refused where `most_requests` wait for its model.
  explicit ModelQueues(std::uint32_t most_requests) : most_requests_(most_requests) {}

  // ---- what others read

  // By index. A free index has an empty one.
  [[nodiscard]] const std::vector<ServedModel>& models() const { return models_; }
  [[nodiscard]] std::size_t queued(ModelIndex model) const {
    return of(model).requests.size() + of(model).suspects.size();
  }
  // No request waits.
  [[nodiscard]] bool empty() const;

  // ---- versions

  [[nodiscard]] ModelIndex add(ServedModel model);
  // Returns whether the order of the waiting requests changed.
  bool change(ModelIndex model, ServedModel changed);
  // Frees the index. REQUIRES: no request waits for it.
  void forget(ModelIndex model);
  [[nodiscard]] bool same_tensors(ModelIndex a, ModelIndex b) const;
  // The queue for requests of the model that come back; empty: it is closed.
  [[nodiscard]] std::optional<ModelIndex> queue_for(ModelIndex model) const;

  // ---- requests

  [[nodiscard]] ModelQueue& of(ModelIndex model) { return *queues_[model]; }
  [[nodiscard]] const ModelQueue& of(ModelIndex model) const { return *queues_[model]; }
  // Why the model's queue has no room for the request; ok: it has.
  [[nodiscard]] Status why_full(ModelIndex model, const Request& request) const;
  // Requests were added to one of the model's queues.
  void list(ModelIndex model);
  // Removes and returns all that wait for the model.
  [[nodiscard]] std::vector<Request> take_all(ModelIndex model);
  // Forgets the requests of the client. Returns how many waited for each model, where any did.
  std::vector<std::pair<ModelIndex, std::size_t>> remove_client(ClientId client);
  // Forgets the request. Returns false if it does not wait.
  bool remove(ModelIndex model, ClientId client, std::uint64_t tag);
  // The listed models that fulfil the predicate, which are listed no longer.
  [[nodiscard]] std::vector<ModelIndex> unlist(const std::function<bool(ModelIndex)>& of_interest);

 private:
  const std::uint32_t most_requests_;
  std::vector<ServedModel> models_;
  // Parallel to models_. By pointer, because queues are large; null: the index is free.
  std::vector<std::unique_ptr<ModelQueue>> queues_;
  std::vector<ModelIndex> free_;
  std::vector<ModelIndex> waiting_;  // listed; some may have no requests any more
};

}  // namespace gpulet::serve
