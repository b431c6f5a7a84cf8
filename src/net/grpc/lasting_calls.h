// LastingCalls: calls that last as long as their client likes, such as a health watch. There is a
// bounded number of them, and draining ends them: the server would wait for them otherwise. Any
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::net::grpc_api {

class LastingCall {
 public:
  // Ends it once what is being written is sent. Any thread.
  virtual void end(const Status& why) = 0;
  virtual ~LastingCall() = default;
};

class LastingCalls {
 public:
  explicit LastingCalls(std::size_t most) : most_(most) {}

  // Keeps no call alive. Fails with overloaded where there are too many, or unavailable while the
  // server drains.
  [[nodiscard]] Status add(const std::shared_ptr<LastingCall>& call);
  // Those that have not ended.
  [[nodiscard]] std::vector<std::shared_ptr<LastingCall>> calls() const;
  // Ends all of them, and takes no others.
  void drain();

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<LastingCall>> calls_;
  bool draining_ = false;
};

}  // namespace gpulet::net::grpc_api
