// An io_context that a test runs until a condition holds. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "gpulet/net/asio.h"

namespace gpulet::net::testing {

// Runs handlers until the condition holds; false after `within`. A condition that holds is not
// evaluated again.
template <typename Condition>
[[nodiscard]] bool run_until(asio::io_context& context, Condition condition,
                             std::chrono::steady_clock::duration within) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  while (!condition()) {
    context.restart();
    if (std::chrono::steady_clock::now() > deadline) return false;
    context.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

class Loop {
 public:
  [[nodiscard]] asio::any_io_executor executor() { return context_.get_executor(); }
  [[nodiscard]] asio::io_context& context() { return context_; }

  [[nodiscard]] bool run_until(const std::function<bool()>& condition) {
    return testing::run_until(context_, condition, std::chrono::seconds(20));
  }

  // Runs the handlers that are ready.
  void run_ready() {
    context_.restart();
    context_.poll();
  }

 private:
  asio::io_context context_;
};

}  // namespace gpulet::net::testing
