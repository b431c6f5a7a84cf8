// ChaosDamage: injects random faults, by seed. It kills or suspends a proxy or a backend; silences
// or breaks a backend's link; kills or stops the frontend and restarts it; removes a model from the
// models file and adds it again; truncates or overwrites a model's file; fills the disk of a
// backend's model store. It repairs every fault after a while. Backend 0 is never killed, so its
// leaks add up. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve/support/site.h"
#include "gpulet/base/random.h"
#include "tests/support/process/cuttable_link.h"

namespace gpulet::bench {

class ChaosDamage {
 public:
  // `models`: the models' file changes, too.
  ChaosDamage(Site& site, std::uint64_t seed, bool models);

  ~ChaosDamage();
  ChaosDamage(const ChaosDamage&) = delete;
  ChaosDamage& operator=(const ChaosDamage&) = delete;

  // Each at the other end of a link of its own, with a model store on a small disk of its own where
  // this process may mount one (fills_disks()); but for backend 0.
  void start_backends();
  [[nodiscard]] bool fills_disks() const { return !disks_.empty(); }
  // Does one; what it breaks is mended `until` at the latest.
  void one_more(std::chrono::steady_clock::time_point until);
  void mend_what_is_due();
  void mend_everything();

  // How often what was done.
  [[nodiscard]] const std::map<std::string, std::size_t>& done() const { return done_; }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Mend {
    TimePoint at;
    std::string what;  // one damage at a time to the same thing
    std::function<void()> mend;
  };

  [[nodiscard]] bool damaged(const std::string& what) const;
  void damaged_until(TimePoint until, const std::string& what, std::function<void()> mend);
  [[nodiscard]] TimePoint a_while(TimePoint until);
  [[nodiscard]] pid_t any_proxy();

  bool kill_proxy(TimePoint until);
  bool stop_proxy(TimePoint until);
  bool kill_backend(TimePoint until);
  bool stop_backend(TimePoint until);
  bool silence_link(TimePoint until);
  bool break_link(TimePoint until);
  bool restart_frontend(TimePoint until);
  bool withdraw_model(TimePoint until);
  bool cut_model_file(TimePoint until);
  bool rewrite_model_file(TimePoint until);
  bool fill_disk(TimePoint until);

  Site& site_;
  Random random_;
  bool models_;
  std::vector<std::unique_ptr<testing::CuttableLink>> links_;
  std::map<std::size_t, std::filesystem::path> disks_;  // mounted, by backend
  std::uint64_t model_version_ = 0;
  std::vector<Mend> mends_;
  std::map<std::string, std::size_t> done_;
};

}  // namespace gpulet::bench
