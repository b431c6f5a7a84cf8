// Notice: what is called at most once, and may be replaced or forgotten before. Private to
// net/http. Single-strand type.
#pragma once

#include <functional>
#include <utility>

#include "gpulet/net/asio.h"

namespace gpulet::net::http {

class Notice {
 public:
  using Call = std::function<void()>;

  void set(Call call) { call_ = std::move(call); }
  [[nodiscard]] bool pending() const { return call_ != nullptr; }
  // It is not called any more. The result keeps what it refers to for as long as the caller needs.
  [[nodiscard]] Call take() { return std::exchange(call_, nullptr); }

  void tell() {
    if (const Call call = take()) call();
  }
  void post(const asio::any_io_executor& executor) {
    if (pending()) asio::post(executor, take());
  }

 private:
  Call call_;
};

}  // namespace gpulet::net::http
