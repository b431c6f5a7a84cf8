// One gpulet as its backend knows it: a value that BackendCore keeps. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/serve/gpulet_phase.h"
#include "gpulet/serve/messages.h"

namespace gpulet::serve {

// A batch that the proxy was given and has not answered.
struct HeldBatch {
  BatchId id;
  std::string model;
  std::uint32_t count = 0;
  Duration expected{};
  Time arrived{};
  Time sent{};
  bool orphaned = false;  // the connection that it came by is gone: nobody waits for its result
};

class HostedGpulet {
 public:
  // Fails with invalid: no models, one twice, a share outside 1..100 %, a shape without a size.
  [[nodiscard]] static Result<HostedGpulet> create(CreateGpulet asked, Time now);

  [[nodiscard]] GpuletId id() const { return asked_.id; }
  [[nodiscard]] std::uint32_t device() const { return asked_.device; }
  [[nodiscard]] Share size() const { return asked_.size; }
  [[nodiscard]] const std::optional<partition::MigInstance>& instance() const {
    return asked_.instance;
  }
  [[nodiscard]] const std::vector<ModelToServe>& models() const { return asked_.models; }
  [[nodiscard]] bool controlled() const {
    return asked_.part.service == schedule::Service::controlled;
  }
  [[nodiscard]] double memory_mb() const { return asked_.memory_mb; }
  [[nodiscard]] GpuletReport report() const;
  void assign(PlanPart part) { asked_.part = std::move(part); }

  [[nodiscard]] GpuletPhase phase() const { return phase_; }
  [[nodiscard]] Time phase_since() const { return phase_since_; }
  // An illegal transition is a bug of the core and throws std::logic_error.
  void enter(GpuletPhase phase, Time now);

  // Whether the batch fits what this gpulet serves: not_found, invalid.
  [[nodiscard]] Status check(const Batch& batch) const;

  // What its process is to load. `files`: by SHA-256; a model without one is given no file.
  [[nodiscard]] LoadModels loading_order(const std::map<std::string, std::string>& files) const;
  [[nodiscard]] std::size_t input_capacity() const { return input_capacity_; }
  [[nodiscard]] std::size_t output_capacity() const { return output_capacity_; }

  // ---- what BackendCore keeps here
  Status status;  // why failed or restarting
  // What that counts against; once its process is being killed, what that will count against.
  FailureCause cause = FailureCause::unknown;
  std::string failed_model;      // the model at fault; empty: not known, or none
  Status doomed;                 // why the process is being killed; ok: it is not
  bool blameless = false;        // its process ends for the device's sake, not for its own
  bool told_restarting = false;  // before the process has ended
  // Its process, which serves others too, ended while so many of them held batches; 0: it did not.
  std::size_t held_at_end = 0;
  partition::FoundShare found_share;  // by its last process that loaded
  std::optional<double> cores;        // that it was last told to have, whichever its process
  std::deque<HeldBatch> held;         // in the order they were sent
  Time last_progress{};               // of the process, while it holds batches
  std::uint32_t load_failures = 0;    // in a row
  std::uint32_t restarts = 0;         // since it was last healthy
  Time restart_at = kNever;
  Time look = kNever;  // the earliest time at which it is going to be looked at

 private:
  struct Sizes {  // of one request
    std::size_t input = 0;
    std::uint32_t max_batch = 0;
    std::string version = {};
  };

  CreateGpulet asked_;
  std::map<std::string, Sizes> sizes_;  // by model
  std::size_t input_capacity_ = 0;
  std::size_t output_capacity_ = 0;
  GpuletPhase phase_ = GpuletPhase::fetching;
  Time phase_since_{};
};

}  // namespace gpulet::serve
