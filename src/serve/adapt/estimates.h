// Estimates: the latencies of models that no device type of the backends has a profile of. They are
// placeholders until the first gpulet of the model has run its probes (serve/adapt/probes.h), then
// estimated from these (profile/estimate.h). Every further gpulet of another size adds its own
// probes, so the cells that plans use are measured. Where a profile has the model, nothing is
// estimated. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gpulet/profile/estimate.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/fleet.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

// The largest batch that the first gpulet of a model is prepared for and probed with, if the model
// takes it. More take long to warm up on a CPU, where latency is nearly linear in the batch.
[[nodiscard]] std::uint32_t largest_first_probe(const schedule::Device& device);

// A model on a type of device.
struct EstimatedPlace {
  std::string type;
  std::string model;

  friend auto operator<=>(const EstimatedPlace&, const EstimatedPlace&) = default;
};

class Estimates {
 public:
  // All outlive it.
  Estimates(bool enabled, const BackendRegistry& backends, const ModelTable& models,
            ProfilesInForce& profiles)
      : enabled_(enabled), backends_(backends), models_(models), profiles_(profiles) {}

  // Adds the estimates to ProfilesInForce::profiles. Call it where models, their objectives,
  // profiles or devices may have changed; it keeps the same object where nothing did.
  void refresh();
  // Probes of this version of the model, each of another cell.
  void add(const EstimatedPlace& place, const std::string& version,
           const std::vector<profile::LatencySample>& probes);
  // Takes the latencies that an earlier leader planned with for gpulets that run, where nothing
  // else is known. They are not probes: the next gpulet is probed.
  void adopt(const schedule::DeviceKey& device, const GpuletReport& gpulet);

  // Whether no profile has the model at the place, so that its gpulets are to be probed there.
  [[nodiscard]] bool estimates(const EstimatedPlace& place) const;
  // The probes of that version of the model. Null: none.
  [[nodiscard]] const std::vector<profile::LatencySample>* probes_of(
      const EstimatedPlace& place, const std::string& version) const;
  // Plans can use devices of that type: it has a profile, or gets estimates.
  [[nodiscard]] bool may_know(const std::string& device_type) const {
    return enabled_ || profiles_.profiles->contains(device_type);
  }
  // The model is planned with placeholders.
  [[nodiscard]] bool unprobed(const std::string& model) const { return unprobed_.contains(model); }
  // By device type and model.
  [[nodiscard]] const std::vector<EstimateStatus>& status() const { return status_; }
  // Some of its latencies are.
  [[nodiscard]] bool estimates(const std::string& model) const {
    return estimated_.contains(model);
  }

 private:
  struct Known {
    std::string version;  // that was probed
    std::vector<profile::LatencySample> cells;
    bool adopted = false;
  };
  struct OfferedType {
    std::set<Share> sizes;
    std::uint32_t first_probe = 1;

    friend bool operator==(const OfferedType&, const OfferedType&) = default;
  };
  // What one estimate depends on, besides the measured profiles.
  struct Wanted {
    EstimatedPlace place;
    std::vector<profile::LatencySample> cells;
    OfferedType offered;
    std::uint32_t max_batch = 1;
    double slo_ms = 0;

    friend bool operator==(const Wanted&, const Wanted&) = default;
  };
  using OfferedTypes = std::map<std::string, OfferedType>;

  [[nodiscard]] OfferedTypes offered_types() const;
  [[nodiscard]] bool measured_on_any(const OfferedTypes& types, const std::string& model) const;
  [[nodiscard]] std::vector<Wanted> wanted() const;
  [[nodiscard]] profile::ModelProfile estimate(const Wanted& wanted) const;
  void build();

  const bool enabled_;
  const BackendRegistry& backends_;
  const ModelTable& models_;
  ProfilesInForce& profiles_;
  std::map<EstimatedPlace, Known> known_;
  std::shared_ptr<const profile::ProfileSet> built_for_;
  std::vector<Wanted> built_;
  std::set<std::string> estimated_;
  std::set<std::string> unprobed_;
  std::vector<EstimateStatus> status_;
};

}  // namespace gpulet::serve
