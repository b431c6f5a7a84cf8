// Signals that a command wants to hear of instead of ending by them, while this lives; afterwards
// they do what they do by default. Libraries start threads of their own before main, so it is not
// enough to block signals in this one: they are caught, in whichever thread. One thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

namespace gpulet::tools {

class SignalWatch {
 public:
  // Throws std::system_error where one of them cannot be caught.
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // One that came and was not taken yet. Waits for nothing.
  [[nodiscard]] std::optional<int> take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::tools
