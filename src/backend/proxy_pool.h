// ProxyPool: proxies that were started before anybody needed them (serve/warm_pool.h says when).
//
// They run below everybody else's priority until they are taken, so that starting them holds up
// no batch. They end with the pool. Single-strand type on the executor given.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "gpulet/backend/proxy_process.h"
#include "gpulet/core/status.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/warm_pool.h"

namespace gpulet::backend {

class ProxyPool {
 public:
  // So many of each of these programs, all as that user and so confined.
  ProxyPool(const net::asio::any_io_executor& executor,
            const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
            std::optional<ProxyUser> user, ProxyConfinement confinement);
  ~ProxyPool();
  ProxyPool(const ProxyPool&) = delete;
  ProxyPool& operator=(const ProxyPool&) = delete;

  struct Taken {
    std::unique_ptr<ProxyProcess> process;
    bool was_warm = false;
  };
  // A process of this program that has nothing to do yet: one from the pool, or a new one. What
  // happens to it from now on is told to the callbacks. Fails as ProxyProcess::start.
  [[nodiscard]] Result<Taken> take(const std::filesystem::path& program, ProxyCallbacks callbacks);

  // Whether any gpulet loads.
  void loading(bool any);
  // Ends the processes and starts no more.
  void close();
  [[nodiscard]] std::vector<pid_t> processes() const;  // that are idle

 private:
  struct Warm {
    std::unique_ptr<ProxyProcess> process;
    bool idle = false;
  };
  struct Shelf {
    serve::WarmPool plan;
    std::vector<Warm> warm;  // in the order they were started: the idle ones come first
  };

  void fill();
  void start_one(const std::filesystem::path& program, Shelf& shelf);
  void on_idle(const std::filesystem::path& program, pid_t process);
  void on_exit(const std::filesystem::path& program, pid_t process, const Status& reason);
  void wake_in_time();

  const net::asio::any_io_executor executor_;
  const std::optional<ProxyUser> user_;
  const ProxyConfinement confinement_;
  std::map<std::filesystem::path, Shelf> shelves_;
  net::Alarm timer_;
  bool closed_ = false;
};

}  // namespace gpulet::backend
