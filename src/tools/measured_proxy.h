// A proxy with one model, fed with batches to find out how long they take.
//
// Every call blocks until its answer is there. One thread, which must outlive the process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/backend/proxy.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/messages.h"
#include "tools/proxy_source.h"

namespace gpulet::tools {

// Turns asynchronous answers into blocking calls, which SIGINT and SIGTERM end.
class BlockingLoop {
 public:
  BlockingLoop();

  [[nodiscard]] net::asio::any_io_executor executor() { return context_.get_executor(); }
  // Returns once `done` is true. Fails with cancelled after a signal, with timeout after that time;
  // `what` names in the message what was waited for.
  [[nodiscard]] Status wait(const std::function<bool()>& done, Duration timeout,
                            const std::string& what);

 private:
  net::asio::io_context context_;
  net::asio::signal_set signals_;
  bool interrupted_ = false;
};

class MeasuredProxy {
 public:
  // Made by the source, for batches up to `largest_batch` and the grant's environment. `end` as in
  // backend::ProxyCallbacks; may be empty.
  [[nodiscard]] static Result<std::unique_ptr<MeasuredProxy>> start(
      BlockingLoop& loop, ProxySource& source, const partition::Grant& grant,
      const config::ModelConfig& model, std::uint32_t largest_batch,
      std::function<bool(pid_t)> end = {});

  [[nodiscard]] pid_t pid() const { return process_->pid(); }

  // Loads and warms the model.
  [[nodiscard]] Result<serve::ProxyReady> load();
  // Lets it end by itself, as a process that holds a share of a GPU should.
  [[nodiscard]] Status stop();

  // A batch that ran.
  struct Answer {
    std::chrono::steady_clock::time_point at;  // when its answer came
    Duration executed{};                       // what the proxy measured
  };
  static constexpr std::uint32_t kInFlight = 2;  // as in serving: one runs, one waits
  // Far beyond what any model needs on a slow core: only a process that hangs reaches it.
  static constexpr Duration kBatchTimeout = std::chrono::minutes(2);
  // Sends a batch of random inputs. REQUIRES: fewer than kInFlight are on their way.
  [[nodiscard]] Status submit(std::uint32_t batch);
  // The answer to the oldest batch on its way.
  [[nodiscard]] Result<Answer> next();
  // Whether next() returns at once.
  [[nodiscard]] bool has_next() const { return !ran_.empty() || ended_.has_value(); }

 private:
  MeasuredProxy(BlockingLoop& loop, const config::ModelConfig& model, std::uint32_t largest_batch,
                Bytes request)
      : loop_(loop), model_(model), largest_batch_(largest_batch), request_(std::move(request)) {}
  // Waits for `done`; the process's end before that is a failure, too.
  [[nodiscard]] Status wait(const std::function<bool()>& done, Duration timeout,
                            const std::string& what);

  BlockingLoop& loop_;
  const config::ModelConfig& model_;
  const std::uint32_t largest_batch_;
  const Bytes request_;  // the model's inputs one after another
  std::map<std::string, std::string> environment_;
  backend::SlotOptions slots_;
  BatchId last_batch_;
  std::optional<serve::ProxyReady> ready_;
  struct Ran {
    std::chrono::steady_clock::time_point at;
    serve::BatchRan message;
  };
  std::deque<Ran> ran_;  // answers that nobody asked for yet
  std::optional<Status> ended_;
  std::unique_ptr<backend::Proxy> process_;  // last: its callbacks write to the others
};

}  // namespace gpulet::tools
