// ProxyProcess: the process of one gpulet, seen from its parent.
//
// The program is started as `PROGRAM --control-fd 3 --memory-fd 4 --files-fd 5` in a process group
// of its own (a Ctrl-C at the terminal is for the parent to handle), with nothing else open but the
// standard streams, as another user where the options name one, and without a way to more rights.
// It may be started before its gpulet is known: load() tells it everything.
//
// As proxy.h says; destroying it kills the process and waits for its end. The parent's thread that
// starts a proxy must outlive it: proxies die with that thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/backend/proxy.h"
#include "gpulet/backend/proxy_confinement.h"
#include "gpulet/backend/proxy_user.h"
#include "gpulet/net/asio.h"

namespace gpulet::backend {

struct ProxyOptions {
  std::filesystem::path program;
  bool in_background = false;  // below this process's priority until it loads, where that can be
  std::optional<ProxyUser> user{};                   // nothing: whom this process is
  std::map<std::string, std::string> environment{};  // from its start, on top of every proxy's
  ProxyConfinement confinement{};
};

class ProxyProcess final : public Proxy {
 public:
  // Fails with not_found (no such program) or unavailable (no memory, no process), naming what
  // failed.
  [[nodiscard]] static Result<std::unique_ptr<ProxyProcess>> start(
      const net::asio::any_io_executor& executor, const ProxyOptions& options,
      ProxyCallbacks callbacks);

  // From now on these are called in place of those before, which hear of nothing any more.
  // REQUIRES: not called within a callback.
  void hand_over(ProxyCallbacks callbacks);

  [[nodiscard]] pid_t pid() const override;
  [[nodiscard]] ProcessEnd process_end() const override;
  [[nodiscard]] Status load(serve::LoadModels models, const SlotOptions& slots) override;
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes) override;
  [[nodiscard]] bool holds(const Bytes& input) const override;
  void run(serve::RunBatch batch, Bytes input) override;
  void stop(Duration deadline) override;
  // By SIGKILL where nobody else does.
  void kill(Status reason) override;

  ~ProxyProcess() override;

 private:
  class Impl;
  explicit ProxyProcess(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with operations in flight
};

}  // namespace gpulet::backend
