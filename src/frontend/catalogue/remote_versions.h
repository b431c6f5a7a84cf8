// RemoteVersions: which version of a file in a remote store a frontend may serve. A frontend that
// leads, or is alone, takes the newest. The others of a cluster fetch it, and take it when the
// leader serves it: until then, their gpulets have the version before. Any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace gpulet::frontend {

class RemoteVersions {
 public:
  explicit RemoteVersions(bool leads) : leads_(leads) {}

  // `served`: the SHA-256 of the version that the leader serves, by model.
  void follow(bool leads, std::map<std::string, std::string> served) {
    const std::lock_guard lock(mutex_);
    leads_ = leads;
    served_ = std::move(served);
  }
  // Whether this version may replace another one.
  [[nodiscard]] bool may_take(const std::string& model, const std::string& sha256) const {
    const std::lock_guard lock(mutex_);
    const auto served = served_.find(model);
    return leads_ || (served != served_.end() && served->second == sha256);
  }

 private:
  mutable std::mutex mutex_;
  bool leads_;
  std::map<std::string, std::string> served_;
};

}  // namespace gpulet::frontend
