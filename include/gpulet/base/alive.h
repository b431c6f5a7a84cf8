// AliveToken: lets a callback that may run after its owner's destruction find out. The owner holds
// the token as a member; the callback holds a Watch and runs only while alive() says so. Safe only
// where the owner is destroyed on the thread (or strand) that runs the callbacks.
#pragma once

#include <memory>

namespace gpulet {

class AliveToken {
 public:
  class Watch {
   public:
    explicit Watch(std::weak_ptr<const int> token) : token_(std::move(token)) {}
    [[nodiscard]] bool alive() const { return !token_.expired(); }

   private:
    std::weak_ptr<const int> token_;
  };

  AliveToken() = default;
  AliveToken(const AliveToken&) = delete;
  AliveToken& operator=(const AliveToken&) = delete;

  [[nodiscard]] Watch watch() const { return Watch(token_); }

 private:
  std::shared_ptr<const int> token_ = std::make_shared<const int>(0);
};

}  // namespace gpulet
