// Proxies with one model each, which are fed with batches to measure how long these take. Calls
// block until the response is there. One thread, which must outlive the proxies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/partition/driver.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"
#include "tools/measure/proxy_programs.h"

namespace gpulet::tools {

// Creates a device's proxies: a process each, or one for all if its partitioning requires it.
class ProxyFactory {
 public:
  ProxyFactory(net::asio::any_io_executor executor, ProxyPrograms programs, bool shared_process)
      : executor_(std::move(executor)),
        programs_(std::move(programs)),
        shared_process_(shared_process) {}

  // The program is that of the model file's format; a shared process is of the program `proxy`.
  // Sets the grant's environment before the process starts if the grant requires it. Starts the
  // shared process with the first proxy, and again after it has ended.
  [[nodiscard]] Result<std::unique_ptr<backend::Proxy>> make(const partition::Grant& grant,
                                                             const std::filesystem::path& model,
                                                             backend::ProxyCallbacks callbacks);

 private:
  net::asio::any_io_executor executor_;
  ProxyPrograms programs_;
  bool shared_process_;
  std::unique_ptr<backend::DeviceProcess> process_;
};

// Turns asynchronous responses into blocking calls, which SIGINT, SIGTERM and SIGHUP
// interrupt.
class BlockingLoop {
 public:
  BlockingLoop();

  [[nodiscard]] net::asio::any_io_executor executor() { return context_.get_executor(); }
  // Returns once `done` is true. Fails with cancelled after a signal, or with timeout.
  [[nodiscard]] Status wait(const std::function<bool()>& done, Duration timeout,
                            const std::string& what);

 private:
  net::asio::io_context context_;
  net::asio::signal_set signals_;
  bool interrupted_ = false;
};

class MeasuredProxy {
 public:
  // `end`: as in backend::ProxyCallbacks; may be empty.
  [[nodiscard]] static Result<std::unique_ptr<MeasuredProxy>> start(
      BlockingLoop& loop, ProxyFactory& factory, const partition::Grant& grant,
      const config::ModelConfig& model, std::uint32_t largest_batch,
      std::function<bool(pid_t)> end = {});

  [[nodiscard]] pid_t pid() const { return process_->pid(); }

  // Loads and warms the model: begin_load(), then finish_load().
  [[nodiscard]] Result<ProxyReady> load();
  // Starts to load the model, and returns at once.
  [[nodiscard]] Status begin_load();
  // Waits until the model is loaded and warm. REQUIRES: begin_load() succeeded.
  [[nodiscard]] Result<ProxyReady> finish_load();
  // Asks the process to exit, so that it gives back its share of a GPU: begin_stop(), then
  // finish_stop(), which waits for the end.
  [[nodiscard]] Status stop();
  void begin_stop();
  [[nodiscard]] Status finish_stop();

  // How long further batches take on a simulated device; other devices ignore it.
  void set_simulated_latency(Duration latency) { simulated_latency_ = latency; }

  // The response to a batch.
  struct Response {
    std::chrono::steady_clock::time_point at;  // when it arrived
    Duration executed{};                       // execution time measured by the proxy
  };
  static constexpr std::uint32_t kInFlight = 2;  // as in serving: one runs, one waits
  // Far beyond the time of any model on a slow core: only a hung process reaches it.
  static constexpr Duration kBatchTimeout = std::chrono::minutes(2);
  // Sends a batch of random inputs. REQUIRES: fewer than kInFlight batches are in flight.
  [[nodiscard]] Status submit(std::uint32_t batch);
  // The response to the oldest batch in flight.
  [[nodiscard]] Result<Response> next();
  // Whether next() returns at once.
  [[nodiscard]] bool has_next() const { return !completed_.empty() || ended_.has_value(); }

 private:
  MeasuredProxy(BlockingLoop& loop, const config::ModelConfig& model, std::uint32_t largest_batch,
                Bytes request)
      : loop_(loop), model_(model), largest_batch_(largest_batch), request_(std::move(request)) {}
  // Waits for `done`. Fails with unavailable if the process ends before.
  [[nodiscard]] Status wait(const std::function<bool()>& done, Duration timeout,
                            const std::string& what);

  BlockingLoop& loop_;
  const config::ModelConfig& model_;
  const std::uint32_t largest_batch_;
  const Bytes request_;  // the inputs of one request
  std::map<std::string, std::string> environment_;
  backend::SlotOptions slots_;
  BatchId last_batch_;
  std::optional<ProxyReady> ready_;
  Duration simulated_latency_{};
  struct CompletedBatch {
    std::chrono::steady_clock::time_point at;
    BatchRan message;
  };
  std::deque<CompletedBatch> completed_;  // not returned by next() yet
  std::optional<Status> ended_;
  std::unique_ptr<backend::Proxy> process_;  // last: its callbacks write to the members above
};

}  // namespace gpulet::tools
