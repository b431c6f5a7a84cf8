#include "tools/busy_watch.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace gpulet::tools {
namespace {

constexpr std::uint64_t kFewestTicks = 25;  // a core's: what rounding adds is 4 % then

struct CoreTicks {
  std::uint32_t core = 0;
  std::uint64_t all = 0;
  std::uint64_t used = 0;
  std::uint64_t stolen = 0;
};

// "cpu3 user nice system idle iowait irq softirq steal guest guest_nice"; guests are part of user
// and nice. Nothing: a line of something else.
std::optional<CoreTicks> parse_core(const std::string& line) {
  constexpr std::size_t kIdle = 3;
  constexpr std::size_t kWaiting = 4;
  constexpr std::size_t kStolen = 7;
  std::istringstream fields(line);
  std::string name;
  std::array<std::uint64_t, 8> ticks{};
  fields >> name;
  for (std::uint64_t& count : ticks) fields >> count;
  if (!fields || !name.starts_with("cpu") || name.size() == 3) return std::nullopt;
  CoreTicks core;
  std::istringstream number(name.substr(3));
  if (!(number >> core.core)) return std::nullopt;
  for (const std::uint64_t count : ticks) core.all += count;
  core.stolen = ticks[kStolen];
  core.used = core.all - ticks[kIdle] - ticks[kWaiting] - core.stolen;
  return core;
}

// In user and kernel mode, of all its threads, ended ones too. The name before may hold anything.
std::optional<std::uint64_t> ticks_of_process(const std::filesystem::path& file) {
  constexpr int kBeforeTimes = 11;  // fields between the name and utime
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string skipped;
  for (int i = 0; i < kBeforeTimes; ++i) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  return user + system;
}

}  // namespace

OffCores::OffCores(const std::vector<std::uint32_t>& cores) {
  if (cores.empty() || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t others = before_;
  for (const std::uint32_t core : cores) {
    if (core < CPU_SETSIZE) CPU_CLR(core, &others);
  }
  off_ = CPU_COUNT(&others) > 0 && ::sched_setaffinity(0, sizeof others, &others) == 0;
}

OffCores::~OffCores() {
  if (off_) static_cast<void>(::sched_setaffinity(0, sizeof before_, &before_));
}

BusyWatch::BusyWatch(std::vector<std::uint32_t> cores, bool shared, std::filesystem::path proc)
    : cores_(std::move(cores)), shared_(shared), proc_(std::move(proc)) {}

std::optional<BusyWatch::Ticks> BusyWatch::look() const {
  if (cores_.empty()) return std::nullopt;
  Ticks ticks;
  std::ifstream stream(proc_ / "stat");
  std::size_t found = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::optional<CoreTicks> core = parse_core(line);
    if (!core || std::find(cores_.begin(), cores_.end(), core->core) == cores_.end()) continue;
    ticks.all += core->all;
    ticks.used += core->used;
    ticks.stolen += core->stolen;
    ++found;
  }
  const auto measured = ticks_of_process(proc_ / std::to_string(process_) / "stat");
  const auto measuring = ticks_of_process(proc_ / "self" / "stat");
  if (found != cores_.size() || !measured || !measuring) return std::nullopt;
  ticks.own = *measured + (shared_ ? *measuring : 0);
  return ticks;
}

void BusyWatch::begin(pid_t process) {
  process_ = process;
  before_ = look();
}

std::optional<double> BusyWatch::end() const {
  const std::optional<Ticks> now = look();
  if (!before_ || !now || now->all < before_->all + kFewestTicks * cores_.size())
    return std::nullopt;
  const auto since = [&](std::uint64_t Ticks::*count) {
    return static_cast<double>((*now).*count) - static_cast<double>((*before_).*count);
  };
  const double others = std::max(0.0, since(&Ticks::used) - since(&Ticks::own));
  return (others + since(&Ticks::stolen)) / since(&Ticks::all);
}

}  // namespace gpulet::tools
