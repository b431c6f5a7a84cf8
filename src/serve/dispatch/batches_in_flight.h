// BatchesInFlight: the batches that gpulets hold, and when their requests must be answered.
// BatchNumbers: the numbers of all batches. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "serve/dispatch/deadlines.h"
#include "serve/dispatch/gpulet_route.h"

namespace gpulet::serve {

struct BatchInFlight {
  GpuletId gpulet;
  BackendId backend;  // of the gpulet
  ModelIndex model = 0;
  Duration expected{};
  Time predicted_end{};
  std::size_t planned = 0;  // its slot's largest batch
  std::vector<Request> requests;
  std::vector<bool> answered;  // parallel to requests; empty: none was
  Time answer_by = kNever;     // as BatchesInFlight has it

  [[nodiscard]] bool is_answered(std::size_t request) const {
    return !answered.empty() && answered[request];
  }
  // The earliest time by which one of its requests must be answered.
  [[nodiscard]] Time next_answer_by() const;
};

class BatchNumbers {
 public:
  // Batches are numbered from `first` on.
  explicit BatchNumbers(BatchId first) : first_(first), next_(first) {}

  [[nodiscard]] BatchId take() { return BatchId{next_.value++}; }
  [[nodiscard]] bool taken(BatchId batch) const { return first_ <= batch && batch < next_; }

 private:
  BatchId first_;
  BatchId next_;
};

class BatchesInFlight {
 public:
  explicit BatchesInFlight(BatchId first) : numbers_(first) {}

  [[nodiscard]] BatchNumbers& numbers() { return numbers_; }
  // Whether this run of the frontend sent a batch of that number.
  [[nodiscard]] bool was_sent(BatchId batch) const { return numbers_.taken(batch); }

  // ---- batches

  void add(BatchId id, BatchInFlight batch);
  // REQUIRES: contains(id).
  [[nodiscard]] BatchInFlight take(BatchId id);
  [[nodiscard]] bool contains(BatchId id) const { return held_.contains(id); }
  [[nodiscard]] bool empty() const { return held_.empty(); }
  // Null: it is not in flight.
  [[nodiscard]] const BatchInFlight* find(BatchId id) const;
  [[nodiscard]] const std::unordered_map<BatchId, BatchInFlight>& all() const { return held_; }
  // Some gpulet holds one of the model.
  [[nodiscard]] bool any_of(ModelIndex model) const {
    return model < by_model_.size() && by_model_[model] > 0;
  }
  // The backend that holds the batch. Empty: none does.
  [[nodiscard]] std::optional<BackendId> holder_of(BatchId batch) const;
  // Those that the gpulet holds, ascending: the same order on every run.
  [[nodiscard]] std::vector<BatchId> held_by(GpuletId gpulet) const;
  // The gpulets with a batch that should have ended `grace` ago, and long ago for its duration.
  [[nodiscard]] std::set<GpuletId> silent(Duration grace, Time now) const;

  // ---- deadlines

  // Calls `answer(batch, index)` for each request whose time has passed and that was not answered.
  template <typename OnOverdue>
  void answer_overdue(Time now, const OnOverdue& answer) {
    for (const BatchId id : deadlines_.take_passed(now)) {
      BatchInFlight& batch = held_.at(id);
      for (std::size_t i = 0; i < batch.requests.size(); ++i) {
        if (!batch.is_answered(i) && batch.requests[i].answer_by() < now) answer(batch, i);
      }
      batch.answer_by = batch.next_answer_by();
      deadlines_.add(batch.answer_by, id);
    }
  }
  // When answer_overdue() is due; kNever: not.
  [[nodiscard]] Time next_deadline() const { return deadlines_.next(); }

 private:
  BatchNumbers numbers_;
  std::unordered_map<BatchId, BatchInFlight> held_;
  std::vector<std::size_t> by_model_;  // how many; models at the end may be missing
  Deadlines<BatchId> deadlines_;
};

}  // namespace gpulet::serve
