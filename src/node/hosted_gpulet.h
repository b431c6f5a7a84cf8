// HostedGpulet: the state of one gpulet in BackendCore. Pure value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::node {

[[nodiscard]] bool is_legal_transition(GpuletPhase from, GpuletPhase to);
// The state that the frontend sees. A retiring gpulet is gone: it accepts no batches.
[[nodiscard]] GpuletState reported_state(GpuletPhase phase);

// A batch in flight at the gpulet's process.
struct HeldBatch {
  FrontendId from;
  BatchId id;
  std::string model;
  std::uint32_t count = 0;
  Duration expected{};
  Time arrived{};
  Time sent{};
  // As in BatchResult.
  std::vector<std::uint32_t> withdrawn{};
  std::vector<std::uint32_t> missing{};
};

class HostedGpulet {
 public:
  // Fails (invalid): no models, a model twice, a share outside 1..100 %, a tensor without a size.
  [[nodiscard]] static Result<HostedGpulet> create(CreateGpulet request, Time now);

  [[nodiscard]] GpuletId id() const { return request_.id; }
  [[nodiscard]] std::uint32_t device() const { return request_.device; }
  [[nodiscard]] Share size() const { return request_.size; }
  [[nodiscard]] const std::optional<partition::MigInstance>& instance() const {
    return request_.instance;
  }
  [[nodiscard]] const std::vector<ModelToServe>& models() const { return request_.models; }
  [[nodiscard]] bool controlled() const {
    return request_.part.service == partition::Service::controlled;
  }
  [[nodiscard]] double memory_mb() const { return request_.memory_mb; }
  [[nodiscard]] GpuletReport report() const;
  void assign(PlanPart part) { request_.part = std::move(part); }

  [[nodiscard]] GpuletPhase phase() const { return phase_; }
  [[nodiscard]] Time phase_since() const { return phase_since_; }
  // Throws std::logic_error on an illegal transition.
  void enter(GpuletPhase phase, Time now);

  // Fails with not_found or invalid if the batch does not fit what this gpulet serves. Does not
  // look at the inputs of one with entries.
  [[nodiscard]] Status check(const Batch& batch) const;
  // Bytes of the inputs of one request. REQUIRES: it serves the model.
  [[nodiscard]] std::size_t row_bytes(const std::string& model) const {
    return sizes_.at(model).input;
  }
  [[nodiscard]] bool has_one_input(const std::string& model) const {
    return sizes_.at(model).inputs.size() == 1;
  }
  // The inputs of whole requests in the layout of a batch (core/request.h). REQUIRES: each has
  // row_bytes(model).
  [[nodiscard]] std::vector<Bytes> in_layout(const std::string& model,
                                             const std::vector<Bytes>& requests) const;

  // What its process loads. `files`: by SHA-256; a model that is not among them gets no file.
  [[nodiscard]] LoadModels load_request(const std::map<std::string, std::string>& files) const;
  [[nodiscard]] std::size_t input_capacity() const { return input_capacity_; }
  [[nodiscard]] std::size_t output_capacity() const { return output_capacity_; }

  // ---- maintained by BackendCore
  std::string owner;   // SetOwner::owner
  Status status;       // why failed or restarting
  Status terminating;  // why the process is being killed; ok: it is not
  // Of `status`, or of `terminating` while that is set.
  FailureCause cause = FailureCause::unknown;
  std::string failed_model;          // the model at fault; empty: unknown, or none
  bool device_at_fault = false;      // the process ends because of the device, not of itself
  bool reported_restarting = false;  // before the process ended
  // The number of gpulets that held batches when the process that they share ended; 0: none ended.
  std::size_t held_at_end = 0;
  partition::FoundShare found_share;  // found by the last process that loaded
  partition::LoadStages load_stages;  // of the same process
  partition::ProcessCondition condition;
  std::optional<Time> condition_reported;  // when a change of it was reported last
  std::optional<double> cores;             // last requested number of controlled cores
  std::deque<HeldBatch> held;              // in the order in which they were sent
  Time last_progress{};                    // of the process, while it holds batches
  std::uint32_t load_failures = 0;         // consecutive
  std::uint32_t restarts = 0;              // since it was last healthy
  Time restart_at = kNever;
  Time check_at = kNever;  // the next scheduled check

 private:
  struct Sizes {
    std::size_t input = 0;  // bytes of one request
    std::uint32_t max_batch = 0;
    std::string version = {};
    std::vector<std::size_t> inputs = {};  // of each
  };

  CreateGpulet request_;
  std::map<std::string, Sizes> sizes_;  // by model
  std::size_t input_capacity_ = 0;
  std::size_t output_capacity_ = 0;
  GpuletPhase phase_ = GpuletPhase::fetching;
  Time phase_since_{};
};

}  // namespace gpulet::node
