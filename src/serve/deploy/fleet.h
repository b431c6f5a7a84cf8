// Fleet: the devices that backends offer, the gpulets on them, and the profiles of models there.
// Plans are made from these; nothing here changes them. Pure; one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "serve/deploy/backend_registry.h"

namespace gpulet::serve {

// The profiles and the interference models of the catalogue in force.
struct ProfilesInForce {
  std::shared_ptr<const profile::ProfileSet> profiles;           // never null; with estimates
  std::shared_ptr<const profile::InterferenceSet> interference;  // of `measured`; may be null
  std::shared_ptr<const profile::ProfileSet>
      measured;  // as in the catalogue (serve/adapt/estimates.h)

  // The model's profile on that device. Null: there is no offer or no such profile.
  [[nodiscard]] const profile::ModelProfile* find(const DeviceOffer* offer,
                                                  const std::string& model) const;
};

class Fleet {
 public:
  // Both outlive it.
  Fleet(const BackendRegistry& backends, const ProfilesInForce& profiles)
      : backends_(backends), profiles_(profiles) {}

  [[nodiscard]] const BackendRegistry& backends() const { return backends_; }
  // Change with the catalogue and with estimates.
  [[nodiscard]] const ProfilesInForce& in_force() const { return profiles_; }
  [[nodiscard]] const profile::ProfileSet& profiles() const { return *profiles_.profiles; }
  // The profile of that type of device. Null: there is none.
  [[nodiscard]] const profile::Profile* profile_of(const std::string& device_type) const;
  // The model's profile on the device. Null: no backend offers it, or there is no such profile.
  [[nodiscard]] const profile::ModelProfile* profile_of(const schedule::DeviceKey& device,
                                                        const std::string& model) const {
    return profiles_.find(backends_.offer_of(device), model);
  }

 private:
  const BackendRegistry& backends_;
  const ProfilesInForce& profiles_;
};

}  // namespace gpulet::serve
