#include "bench/serve/chaos_damage.h"

#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "bench/serve/support/inventory.h"

namespace gpulet::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestWhile_s = 4;
constexpr double kShortestWhile_s = 0.2;
constexpr Duration kTimeToEnd = std::chrono::seconds(20);

// Room for some versions of every model, each of a page.
constexpr const char* kDisk = "size=256k,mode=0700";
constexpr std::size_t kPage = 4096;

std::string backend_name(std::size_t index) { return "backend " + std::to_string(index); }

}  // namespace

ChaosDamage::ChaosDamage(Site& site, std::uint64_t seed, bool models)
    : site_(site), random_(stream_seed(seed, "damage")), models_(models) {}

ChaosDamage::~ChaosDamage() {
  for (const auto& [index, disk] : disks_) ::umount2(disk.c_str(), MNT_DETACH);
}

void ChaosDamage::start_backends() {
  for (std::size_t i = 0; i < site_.backends(); ++i) {
    const std::filesystem::path store = site_.store(i);
    std::filesystem::create_directories(store);
    std::filesystem::permissions(store, std::filesystem::perms::owner_all);
    if (i > 0 && ::mount("gpulet-chaos", store.c_str(), "tmpfs", 0, kDisk) == 0) disks_[i] = store;
    links_.push_back(std::make_unique<testing::CuttableLink>(site_.backend_port()));
    site_.start_backend(i, links_.back()->port());
  }
}

void ChaosDamage::one_more(TimePoint until) {
  using Damage = bool (ChaosDamage::*)(TimePoint);
  struct Choice {
    Damage damage;
    std::uint64_t weight;
  };
  const std::vector<Choice> choices = {{&ChaosDamage::kill_proxy, 5},
                                       {&ChaosDamage::stop_proxy, 3},
                                       {&ChaosDamage::kill_backend, 2},
                                       {&ChaosDamage::stop_backend, 2},
                                       {&ChaosDamage::silence_link, 3},
                                       {&ChaosDamage::break_link, 2},
                                       {&ChaosDamage::restart_frontend, 1},
                                       {&ChaosDamage::withdraw_model, models_ ? 2U : 0U},
                                       {&ChaosDamage::cut_model_file, models_ ? 2U : 0U},
                                       {&ChaosDamage::rewrite_model_file, models_ ? 2U : 0U},
                                       {&ChaosDamage::fill_disk, fills_disks() ? 2U : 0U}};
  std::uint64_t all = 0;
  for (const Choice& choice : choices) all += choice.weight;
  std::uint64_t drawn = random_.below(all);
  for (const Choice& choice : choices) {
    if (drawn < choice.weight) {
      (this->*choice.damage)(until);
      return;
    }
    drawn -= choice.weight;
  }
}

void ChaosDamage::mend_what_is_due() {
  const TimePoint now = Clock::now();
  std::vector<Mend> due;
  for (Mend& mend : mends_) {
    if (mend.at <= now) due.push_back(std::move(mend));
  }
  std::erase_if(mends_, [now](const Mend& mend) { return mend.at <= now; });
  for (const Mend& mend : due) mend.mend();
}

void ChaosDamage::mend_everything() {
  for (const Mend& mend : std::exchange(mends_, {})) mend.mend();
}

bool ChaosDamage::damaged(const std::string& what) const {
  return std::any_of(mends_.begin(), mends_.end(),
                     [&](const Mend& mend) { return mend.what == what; });
}

void ChaosDamage::damaged_until(TimePoint until, const std::string& what,
                                std::function<void()> mend) {
  mends_.push_back({until, what, std::move(mend)});
}

ChaosDamage::TimePoint ChaosDamage::a_while(TimePoint until) {
  const double seconds =
      kShortestWhile_s + random_.uniform() * (kLongestWhile_s - kShortestWhile_s);
  return std::min(until, Clock::now() + from_seconds(seconds));
}

pid_t ChaosDamage::any_proxy() {
  std::vector<ProcessFacts> proxies = processes_with(site_.mark());
  std::erase_if(proxies, [](const ProcessFacts& process) {
    return process.program != "gpulet-proxy-simulated";
  });
  return proxies.empty() ? 0 : proxies[random_.below(proxies.size())].pid;
}

bool ChaosDamage::kill_proxy(TimePoint /*until*/) {
  const pid_t proxy = any_proxy();
  if (proxy == 0) return false;
  ::kill(proxy, SIGKILL);
  ++done_["proxy killed"];
  return true;
}

bool ChaosDamage::stop_proxy(TimePoint until) {
  const pid_t proxy = any_proxy();
  if (proxy == 0) return false;
  ::kill(proxy, SIGSTOP);
  ++done_["proxy stopped"];
  damaged_until(a_while(until), "proxy", [proxy] { ::kill(proxy, SIGCONT); });
  return true;
}

bool ChaosDamage::kill_backend(TimePoint until) {
  if (site_.backends() < 2) return false;
  const std::size_t index = 1 + random_.below(site_.backends() - 1);
  if (damaged(backend_name(index))) return false;
  const bool by_force = random_.below(2) == 0;
  DaemonProcess& backend = site_.backend(index);
  backend.signal(by_force ? SIGKILL : SIGTERM);
  ++done_[by_force ? "backend killed" : "backend told to stop"];
  damaged_until(a_while(until), backend_name(index), [this, index] {
    if (!site_.backend(index).wait_for_end(kTimeToEnd)) ++done_["backend that would not end"];
    site_.start_backend(index, links_[index]->port());
  });
  return true;
}

bool ChaosDamage::stop_backend(TimePoint until) {
  const std::size_t index = random_.below(site_.backends());
  if (damaged(backend_name(index))) return false;
  site_.backend(index).signal(SIGSTOP);
  ++done_["backend stopped"];
  damaged_until(a_while(until), backend_name(index),
                [this, index] { site_.backend(index).signal(SIGCONT); });
  return true;
}

bool ChaosDamage::silence_link(TimePoint until) {
  const std::size_t index = random_.below(links_.size());
  const std::string name = "link " + std::to_string(index);
  if (damaged(name)) return false;
  links_[index]->silence();
  ++done_["link cut"];
  damaged_until(a_while(until), name, [this, index] { links_[index]->heal(); });
  return true;
}

bool ChaosDamage::break_link(TimePoint /*until*/) {
  links_[random_.below(links_.size())]->break_all();
  ++done_["link broken"];
  return true;
}

bool ChaosDamage::restart_frontend(TimePoint until) {
  if (damaged("frontend")) return false;
  const bool by_force = random_.below(2) == 0;
  site_.frontend().signal(by_force ? SIGKILL : SIGTERM);
  ++done_[by_force ? "frontend killed" : "frontend told to stop"];
  const TimePoint soon = std::min(a_while(until), Clock::now() + std::chrono::seconds(1));
  damaged_until(soon, "frontend", [this] {
    if (!site_.frontend().wait_for_end(kTimeToEnd)) ++done_["frontend that would not end"];
    site_.start_frontend();
  });
  return true;
}

// The file that backends may be fetching right now.
bool ChaosDamage::cut_model_file(TimePoint until) {
  const std::string model = site_.models()[random_.below(site_.models().size())].name;
  if (damaged("file of " + model)) return false;
  const std::filesystem::path file = site_.model_file(model);
  std::error_code ignored;
  std::filesystem::resize_file(file, random_.below(10), ignored);
  ++done_["model file cut short"];
  damaged_until(a_while(until), "file of " + model,
                [this, model] { site_.write_model_file(model, model_version_); });
  return true;
}

// Writes into the existing file, so that a concurrent reader sees a mix of both versions.
bool ChaosDamage::rewrite_model_file(TimePoint /*until*/) {
  const std::string model = site_.models()[random_.below(site_.models().size())].name;
  if (damaged("file of " + model)) return false;
  std::ofstream(site_.model_file(model)) << Site::model_text(model, ++model_version_);
  ++done_["model file rewritten"];
  return true;
}

bool ChaosDamage::fill_disk(TimePoint until) {
  auto chosen = disks_.begin();
  std::advance(chosen, static_cast<std::ptrdiff_t>(random_.below(disks_.size())));
  const std::string name = "disk " + std::to_string(chosen->first);
  if (damaged(name)) return false;
  const std::filesystem::path filler = chosen->second / "filler";
  std::ofstream file(filler, std::ios::binary);
  const std::array<char, kPage> page{};
  while (file.write(page.data(), page.size()).flush()) {
  }
  ++done_["disk filled"];
  damaged_until(a_while(until), name, [filler] {
    std::error_code ignored;
    std::filesystem::remove(filler, ignored);
  });
  return true;
}

bool ChaosDamage::withdraw_model(TimePoint until) {
  if (damaged("models")) return false;
  const std::string model = site_.models().back().name;
  site_.withdraw_model(model);
  ++done_["model withdrawn"];
  damaged_until(a_while(until), "models", [this] { site_.restore_models(); });
  return true;
}

}  // namespace gpulet::bench
