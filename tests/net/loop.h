// An io_context that a test drives until something has come true. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "gpulet/net/asio.h"

namespace gpulet::net::testing {

class Loop {
 public:
  [[nodiscard]] asio::any_io_executor executor() { return context_.get_executor(); }
  [[nodiscard]] asio::io_context& context() { return context_; }

  // Runs handlers until the condition holds; false where it does not within the deadline.
  [[nodiscard]] bool run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      context_.restart();
      if (std::chrono::steady_clock::now() > deadline) return false;
      context_.run_one_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  // Runs what is ready now.
  void run_ready() {
    context_.restart();
    context_.poll();
  }

 private:
  asio::io_context context_;
};

}  // namespace gpulet::net::testing
