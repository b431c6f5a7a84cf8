// World: the cores of one frontend and any number of backends in virtual time, without sockets or
// processes.
//
// Messages take a fixed time on the way; proxies are queues that take the simulated latency of each
// batch and give every request its own input back. Everything happens in the order of its time,
// ties in the order in which it was made, so a run is the same every time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/backend_core.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve::testing {

// The profile "card": batch n of each model on p percent takes base_ms * (0.5 + 0.5 n) * 100 / p.
[[nodiscard]] profile::Profile card_profile(const std::map<std::string, double>& base_ms);

// A model of one byte in and one byte out.
[[nodiscard]] ServedModel byte_model(const std::string& name, double slo_ms, double rate);

struct WorldOptions {
  Duration link = std::chrono::microseconds(100);
  Duration process_start = std::chrono::milliseconds(400);
  Duration model_load = std::chrono::milliseconds(300);
  Duration planning = std::chrono::milliseconds(1);
};

class World {
 public:
  World(FrontendOptions frontend, std::vector<ServedModel> models, const profile::Profile& profile,
        WorldOptions options = {});

  // A node with `devices` simulated devices of type "card", connected at once.
  void add_backend(const std::string& node, std::uint32_t devices);
  // Its process is killed: nothing more is heard from it or its gpulets.
  void kill_backend(const std::string& node);
  // The process of one gpulet that serves now dies. Returns false where none does.
  bool kill_a_proxy(const std::string& node);

  // A request at that time; the answer shows up in replies().
  void request_at(Time time, const std::string& model, std::uint64_t tag, Duration timeout = {});
  void drain_at(Time time);
  void run_until(Time time);

  struct Answered {
    Time time;
    InferReply reply;
  };
  [[nodiscard]] const std::map<std::uint64_t, std::vector<Answered>>& replies() const {
    return replies_;
  }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] FrontendStatus status() const { return frontend_.status(now_); }
  [[nodiscard]] bool drained() const { return drained_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] std::vector<std::uint64_t> plans() const { return plans_; }

 private:
  struct Proxy {
    std::deque<RunBatch> waiting;
    std::deque<Bytes> inputs;
    bool running = false;
    bool finishing = false;
    std::uint64_t life = 0;  // events of an earlier process are void
  };
  struct Backend {
    BackendId id;
    BackendCore core;
    std::map<GpuletId, Proxy> proxies;
    Time wake = kNever;
  };

  void at(Time time, std::function<void()> what);
  void feed_frontend(FrontendEvent event);
  void carry_out(FrontendEffect& effect);
  void feed_backend(const std::string& node, BackendEvent event);
  void carry_out(const std::string& node, BackendEffect& effect);
  void tell_backend(const std::string& node, BackendCommand& command);
  void run_proxy(const std::string& node, GpuletId gpulet);
  [[nodiscard]] std::string node_of(BackendId id) const;

  WorldOptions options_;
  std::shared_ptr<profile::ProfileSet> profiles_;
  std::unique_ptr<schedule::Policy> policy_;
  Time now_{std::chrono::seconds(1)};
  FrontendCore frontend_;
  std::map<std::string, Backend> backends_;

  struct Happening {
    Time time;
    std::uint64_t order;
    std::function<void()> what;
    bool operator>(const Happening& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> agenda_;
  std::uint64_t next_order_ = 0;
  std::uint64_t next_backend_ = 1;
  std::uint64_t next_life_ = 1;
  bool settle_due_ = false;
  bool drained_ = false;
  std::map<std::uint64_t, std::vector<Answered>> replies_;
  std::vector<std::string> notes_;
  std::vector<std::uint64_t> plans_;
};

}  // namespace gpulet::serve::testing
