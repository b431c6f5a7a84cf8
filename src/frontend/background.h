// Background: a thread for work that must not hold up the event loop, at a lower priority than the
// loop's. What it makes is handed over on the io_context's thread, in the order in which the work
// was given. The io_context must not run any more when this goes.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <utility>

#include "gpulet/net/asio.h"

namespace gpulet::frontend {

class Background {
 public:
  explicit Background(net::asio::io_context& io);
  // Waits for the work that is being done.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Calls work() on the thread, then then(what it returned) on the io_context's. What `work` holds
  // is destroyed on the thread.
  template <typename Work, typename Then>
  void run(Work work, Then then) {
    net::asio::post(*thread_, [this, work = std::move(work), then = std::move(then)]() mutable {
      net::asio::post(io_,
                      [made = work(), then = std::move(then)]() mutable { then(std::move(made)); });
    });
  }

  // The value, which is destroyed on the thread whoever lets it go last: to destroy what was told
  // of thousands of models takes milliseconds. It may outlive the Background.
  template <typename Value>
  [[nodiscard]] std::shared_ptr<const Value> shared(Value value) {
    return {new Value(std::move(value)), [thread = std::weak_ptr(thread_)](const Value* held) {
              std::unique_ptr<const Value> last(held);
              if (const auto there = thread.lock())
                net::asio::post(*there, [last = std::move(last)] {});
            }};
  }

 private:
  using Thread = boost::asio::thread_pool;

  net::asio::io_context& io_;
  std::shared_ptr<Thread> thread_ = std::make_shared<Thread>(1);
};

}  // namespace gpulet::frontend
