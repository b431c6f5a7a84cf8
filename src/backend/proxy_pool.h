// ProxyPool: the warm proxies of a backend (backend/warm_pool.h decides when they start).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "backend/warm_pool.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::backend {

// The status of a process that could not start because a library threw: the machine has no memory,
// threads or descriptors left. It concerns that process only, and running gpulets continue.
[[nodiscard]] Status lack_of_room(const std::exception& failure);

// Proxy processes that are started ahead of demand. They run at a low priority until they are
// taken, so that starting them does not delay batches. Those that are still in the pool end with
// it. Single-strand type on the executor given.
class ProxyPool {
 public:
  // Keeps `warm_proxies` processes of each of these programs, and of any other program after its
  // first take(). `options` apply to all processes; ProxyOptions::program is ignored.
  ProxyPool(const net::asio::any_io_executor& executor,
            const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
            ProxyOptions options);
  ProxyPool(const ProxyPool&) = delete;
  ProxyPool& operator=(const ProxyPool&) = delete;

  struct Taken {
    std::unique_ptr<Proxy> proxy;
    const char* kind;  // for the log
  };
  // Takes the oldest process of this program from the pool, which may not be idle yet, or starts
  // one. Fails as ProxyProcess::start and, with lack_of_room(), where that throws.
  [[nodiscard]] Result<Taken> take(const std::filesystem::path& program, ProxyCallbacks callbacks);

  // Call it when a gpulet changes. `any`: a gpulet is loading, so no process starts.
  void set_loading(bool any);
  // Ends the processes in the pool and starts no more ahead of demand.
  void close();
  [[nodiscard]] std::vector<pid_t> idle_processes() const;

 private:
  struct Warm {
    std::unique_ptr<ProxyProcess> process;
    bool idle = false;
  };
  struct ProgramPool {
    WarmPool plan;
    std::vector<Warm> warm;  // in the order of their start, so idle ones come first
  };

  // Adds the pool of a new program.
  ProgramPool& pool_of(const std::filesystem::path& program);
  [[nodiscard]] Result<std::unique_ptr<ProxyProcess>> start_process(
      const std::filesystem::path& program, bool in_background, ProxyCallbacks callbacks) const;
  // Starts the processes that are due, and sets the timer for the next ones.
  void fill();
  void start_one(const std::filesystem::path& program, ProgramPool& pool);
  void on_idle(const std::filesystem::path& program, pid_t process);
  void on_exit(const std::filesystem::path& program, pid_t process, const Status& reason);
  void set_timer();

  const net::asio::any_io_executor executor_;
  const std::uint32_t warm_proxies_;
  const ProxyOptions options_;
  std::map<std::filesystem::path, ProgramPool> pools_;
  net::Alarm timer_;
  bool closed_ = false;
};

}  // namespace gpulet::backend
