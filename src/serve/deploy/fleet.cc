#include "serve/deploy/fleet.h"

namespace gpulet::serve {

const profile::ModelProfile* ProfilesInForce::find(const DeviceOffer* offer,
                                                   const std::string& model) const {
  const auto profile = offer == nullptr ? profiles->end() : profiles->find(offer->device.type);
  return profile == profiles->end() ? nullptr : profile->second.find(model);
}

const profile::Profile* Fleet::profile_of(const std::string& device_type) const {
  const auto found = profiles().find(device_type);
  return found == profiles().end() ? nullptr : &found->second;
}

}  // namespace gpulet::serve
