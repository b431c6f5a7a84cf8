#include "partition/drivers/cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "gpulet/base/files.h"
#include "gpulet/base/text.h"

namespace gpulet::partition {
namespace {

constexpr std::string_view kPrefix = "gpulet-";
constexpr std::chrono::microseconds kPeriod{10'000};     // drivers.h has the reason
constexpr std::chrono::microseconds kLeastQuota{1'000};  // the kernel's minimum
constexpr std::chrono::microseconds kLongestPeriod{1'000'000};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool lists(std::string_view text, char separator, std::string_view word) {
  const auto parts = split(text, separator);
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

// Decodes the octal escapes of mountinfo, such as \040 for a blank.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ec == std::errc()) {
      plain.push_back(static_cast<char>(value));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

struct Mount {
  CgroupVersion version = CgroupVersion::v2;
  std::string root;  // the mounted part of the hierarchy
  std::string point;
};

std::vector<Mount> cgroup_mounts(std::string_view mountinfo, std::string_view controller) {
  std::vector<Mount> mounts;
  for (const auto line : split(mountinfo, '\n')) {
    // id parent major:minor root point options [optional fields] - type source super-options
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const bool v1 = after[0] == "cgroup" && lists(after[2], ',', controller);
    if (!v1 && after[0] != "cgroup2") continue;
    mounts.push_back(
        {v1 ? CgroupVersion::v1 : CgroupVersion::v2, unescape(before[3]), unescape(before[4])});
  }
  return mounts;
}

// The process's path in the hierarchy; empty where it is in none.
std::string_view own_path(std::string_view own_cgroups, CgroupVersion version,
                          std::string_view controller) {
  for (const auto line : split(own_cgroups, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool match =
        version == CgroupVersion::v2 ? controllers.empty() : lists(controllers, ',', controller);
    if (match) return line.substr(second + 1);
  }
  return {};
}

std::string first_line(const std::filesystem::path& file) {
  const auto text = read_cgroup_file(file);
  return text.substr(0, text.find('\n'));
}

// "gpulet-<pid>-<what>"
template <typename What>
std::string name_of_own(const What& what) {
  return fmt::format("{}{}-{}", kPrefix, ::getpid(), what);
}

// The cgroup that enable_below() makes.
std::string own_name() { return name_of_own("backend"); }

bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

Status make_cgroup(const std::filesystem::path& directory) {
  ::rmdir(directory.c_str());  // left over by a dead process with the same id
  if (::mkdir(directory.c_str(), 0755) == 0) return {};
  return {StatusCode::unavailable,
          fmt::format("cannot create the cgroup {}: {}", directory.string(), std::strerror(errno))};
}

// The cgroup of the gpulet, below the place.
std::filesystem::path gpulet_cgroup(const CgroupPlace& place, GpuletId gpulet) {
  return place.directory / name_of_own(gpulet.value);
}

// Removes the cgroups of backends that no longer run.
void remove_abandoned_cgroups(const CgroupPlace& place) {
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  for (std::filesystem::directory_iterator entry(place.directory, error), end;
       !error && entry != end; entry.increment(error)) {
    const pid_t owner = owner_of_cgroup(entry->path().filename().string());
    if (owner != 0 && !is_alive(owner)) leftovers.push_back(entry->path());
  }
  for (const auto& leftover : leftovers) ::rmdir(leftover.c_str());
}

// False while the kernel still counts a process in it.
bool remove_cgroup(const std::filesystem::path& directory) {
  return ::rmdir(directory.c_str()) == 0 || errno != EBUSY;
}

}  // namespace

std::vector<CgroupPlace> find_cgroup_places(std::string_view mountinfo,
                                            std::string_view own_cgroups,
                                            std::string_view controller) {
  std::vector<CgroupPlace> places;
  for (const auto& mount : cgroup_mounts(mountinfo, controller)) {
    const auto path = own_path(own_cgroups, mount.version, controller);
    if (path.empty()) continue;
    // In a container only a part of the hierarchy is mounted, and the path may begin at the host's
    // root.
    const std::string root = mount.root == "/" ? "" : mount.root;
    const bool below = path.starts_with(root) && path.find("..") == std::string_view::npos;
    std::filesystem::path directory(mount.point);
    if (below && path.size() > root.size() + 1) directory /= path.substr(root.size() + 1);
    places.push_back({mount.version, directory});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.version > b.version; });
  return places;
}

std::vector<CgroupPlace> own_cgroup_places(std::string_view controller) {
  auto places = find_cgroup_places(read_cgroup_file("/proc/self/mountinfo"),
                                   read_cgroup_file("/proc/self/cgroup"), controller);
  for (auto& place : places) {
    if (place.directory.filename() == own_name()) place.directory = place.directory.parent_path();
  }
  return places;
}

Status enable_below(const CgroupPlace& place, std::string_view controller) {
  const auto control = place.directory / "cgroup.subtree_control";
  if (cgroup_lists(control, controller)) return {};
  const auto wanted = "+" + std::string(controller);
  auto enabled = write_cgroup_file(control, wanted);
  const auto members = place.directory / "cgroup.procs";
  const auto self = std::to_string(::getpid());
  if (enabled.ok() || read_cgroup_file(members) != self + "\n") return enabled;
  const auto below = place.directory / own_name();
  if (::mkdir(below.c_str(), 0755) != 0 && errno != EEXIST) return enabled;
  auto moved = write_cgroup_file(below / "cgroup.procs", self);
  if (moved.ok()) moved = write_cgroup_file(control, wanted);
  if (moved.ok()) return {};
  static_cast<void>(write_cgroup_file(members, self));
  ::rmdir(below.c_str());
  return moved;
}

bool cgroup_lists(const std::filesystem::path& file, std::string_view word) {
  return lists(first_line(file), ' ', word);
}

std::string read_cgroup_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A control file must exist and be written by one call.
Status write_cgroup_file(const std::filesystem::path& file, const std::string& text) {
  const FileDescriptor out(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  const bool written = out.valid() && ::write(out.get(), text.data(), text.size()) ==
                                          static_cast<ssize_t>(text.size());
  if (written) return {};
  return {StatusCode::unavailable,
          fmt::format("cannot write \"{}\" to {}: {}", text, file.string(), std::strerror(errno))};
}

pid_t owner_of_cgroup(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const auto dash = name.find('-');
  if (dash == std::string_view::npos || dash + 1 == name.size()) return 0;
  return std::max(parse_number<pid_t>(name.substr(0, dash)).value_or(0), 0);
}

CpuBandwidth bandwidth_of(double cores) {
  auto period = kPeriod;
  const auto quota_in = [cores](std::chrono::microseconds of) {
    return std::chrono::microseconds(std::llround(cores * static_cast<double>(of.count())));
  };
  if (quota_in(period) < kLeastQuota) {
    period = std::min(
        std::chrono::microseconds(std::llround(static_cast<double>(kLeastQuota.count()) / cores)),
        kLongestPeriod);
  }
  return {std::max(quota_in(period), kLeastQuota), period};
}

Result<CpuCgroups> CpuCgroups::open(bool with_memory) {
  std::string tried;
  for (const auto& place : own_cgroup_places("cpu")) {
    CpuCgroups cgroups(place);
    // Memory comes before the cpu controller: below a cgroup with processes, the cpu controller
    // allows only threaded cgroups, which do not support memory. Shares work without memory.
    if (with_memory && place.version == CgroupVersion::v2)
      static_cast<void>(enable_below(place, "memory"));
    const auto prepared = cgroups.prepare();
    if (prepared.ok()) {
      remove_abandoned_cgroups(place);
      return cgroups;
    }
    tried += (tried.empty() ? "" : "; ") + prepared.message();
  }
  return Status(StatusCode::unavailable,
                fmt::format("no writable cgroup with the cpu controller: {}; delegate one to this "
                            "user, or run as root",
                            tried.empty() ? "none is mounted" : tried));
}

Status CpuCgroups::prepare() const {
  if (place_.version == CgroupVersion::v2) {
    if (!cgroup_lists(place_.directory / "cgroup.controllers", "cpu")) {
      return {StatusCode::unavailable,
              place_.directory.string() + " does not have the cpu controller"};
    }
    const auto control = place_.directory / "cgroup.subtree_control";
    if (!cgroup_lists(control, "cpu")) {
      if (Status enabled = write_cgroup_file(control, "+cpu"); !enabled.ok()) return enabled;
    }
  }
  const auto trial = place_.directory / name_of_own("trial");
  if (Status made = make_directory(trial); !made.ok()) return made;
  const auto* limit = place_.version == CgroupVersion::v2 ? "cpu.max" : "cpu.cfs_quota_us";
  auto writable =
      ::access((trial / limit).c_str(), W_OK) == 0
          ? Status()
          : Status(StatusCode::unavailable, (trial / limit).string() + " cannot be written");
  ::rmdir(trial.c_str());
  return writable;
}

Status CpuCgroups::make_directory(const std::filesystem::path& directory) const {
  if (Status made = make_cgroup(directory); !made.ok()) return made;
  if (place_.version == CgroupVersion::v2 &&
      first_line(directory / "cgroup.type") == "domain invalid") {
    // The parent contains this process, so only threaded cgroups are allowed below it.
    return write_cgroup_file(directory / "cgroup.type", "threaded");
  }
  return {};
}

Status CpuCgroups::create(GpuletId gpulet) { return make_directory(gpulet_cgroup(place_, gpulet)); }

Status CpuCgroups::limit(GpuletId gpulet, CpuBandwidth bandwidth) {
  const auto directory = gpulet_cgroup(place_, gpulet);
  const auto quota = std::to_string(bandwidth.quota.count());
  const auto period = std::to_string(bandwidth.period.count());
  if (place_.version == CgroupVersion::v2)
    return write_cgroup_file(directory / "cpu.max", quota + " " + period);
  const auto quota_file = directory / "cpu.cfs_quota_us";
  const auto period_file = directory / "cpu.cfs_period_us";
  if (first_line(period_file) == period) return write_cgroup_file(quota_file, quota);
  // Period and quota are two files. Remove the quota first, so that the values are legal under the
  // parent's limit at any moment.
  auto limited = write_cgroup_file(quota_file, "-1");
  if (limited.ok()) limited = write_cgroup_file(period_file, period);
  return limited.ok() ? write_cgroup_file(quota_file, quota) : limited;
}

Status CpuCgroups::weigh(GpuletId gpulet, CpuWeight weight) {
  // A tenth of the default weight. With the minimum, any other process that keeps the core busy
  // would delay a loading process for minutes.
  const bool low = weight == CpuWeight::low;
  const auto directory = gpulet_cgroup(place_, gpulet);
  return place_.version == CgroupVersion::v2
             ? write_cgroup_file(directory / "cpu.weight", low ? "10" : "100")
             : write_cgroup_file(directory / "cpu.shares", low ? "102" : "1024");
}

Status CpuCgroups::add(GpuletId gpulet, pid_t process) {
  return write_cgroup_file(gpulet_cgroup(place_, gpulet) / "cgroup.procs", std::to_string(process));
}

bool CpuCgroups::remove(GpuletId gpulet) { return remove_cgroup(gpulet_cgroup(place_, gpulet)); }

namespace {

// The number at the beginning of the text; 0 where there is none.
std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The number in the line "name number"; 0 where there is none.
std::uint64_t number_after(std::string_view text, std::string_view name) {
  for (const auto line : split(text, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' '))
      return number_in(line.substr(name.size() + 1));
  }
  return 0;
}

OutOfMemory reported(std::uint64_t killed, std::uint64_t reached_limit) {
  if (killed == 0) return OutOfMemory::no;
  return reached_limit > 0 ? OutOfMemory::at_its_limit : OutOfMemory::with_the_node;
}

bool file_exists(const std::filesystem::path& file) { return ::access(file.c_str(), F_OK) == 0; }

}  // namespace

OutOfMemory out_of_memory_v2(std::string_view memory_events) {
  return reported(number_after(memory_events, "oom_kill"), number_after(memory_events, "oom"));
}

OutOfMemory out_of_memory_v1(std::string_view oom_control, std::string_view most_used,
                             std::string_view limit) {
  // The kernel charges memory in batches; the last batch did not fit.
  constexpr std::uint64_t kChargeBatch = std::uint64_t{1} << 20U;
  const bool reached =
      number_in(limit) > 0 && number_in(most_used) + kChargeBatch >= number_in(limit);
  return reported(number_after(oom_control, "oom_kill"), reached ? 1 : 0);
}

Result<MemoryCgroups> MemoryCgroups::open(const CpuCgroups& cpu) {
  constexpr GpuletId kTrial{0};  // no gpulet has this id
  if (cpu.place().version == CgroupVersion::v2 &&
      cgroup_lists(cpu.place().directory / "cgroup.subtree_control", "memory")) {
    return MemoryCgroups(cpu.place());
  }
  std::string tried =
      "the memory controller is not enabled below " + cpu.place().directory.string();
  for (const auto& place : own_cgroup_places("memory")) {
    if (place.version != CgroupVersion::v1) continue;
    MemoryCgroups cgroups(place);
    const auto made = cgroups.create(kTrial, std::uint64_t{1} << 40U);
    static_cast<void>(cgroups.remove(kTrial));
    if (made.ok()) {
      remove_abandoned_cgroups(place);
      return cgroups;
    }
    tried += "; " + made.message();
  }
  return Status(StatusCode::unavailable, std::move(tried));
}

Status MemoryCgroups::create(GpuletId gpulet, std::uint64_t bytes) {
  const auto directory = gpulet_cgroup(place_, gpulet);
  const auto limit = std::to_string(bytes);
  limited_.insert(gpulet);
  if (place_.version == CgroupVersion::v2) {
    if (file_exists(directory / "memory.swap.max")) {
      if (auto none = write_cgroup_file(directory / "memory.swap.max", "0"); !none.ok())
        return none;
    }
    return write_cgroup_file(directory / "memory.max", limit);
  }
  if (Status made = make_cgroup(directory); !made.ok()) return made;
  auto limited = write_cgroup_file(directory / "memory.limit_in_bytes", limit);
  // Set after the memory limit, because memory plus swap must not be below it.
  const auto with_swap = directory / "memory.memsw.limit_in_bytes";
  if (limited.ok() && file_exists(with_swap)) limited = write_cgroup_file(with_swap, limit);
  return limited;
}

Status MemoryCgroups::add(GpuletId gpulet, pid_t process) {
  if (place_.version == CgroupVersion::v2 || !limited_.contains(gpulet))
    return {};  // CpuCgroups has added it
  return write_cgroup_file(gpulet_cgroup(place_, gpulet) / "cgroup.procs", std::to_string(process));
}

OutOfMemory MemoryCgroups::out_of_memory(GpuletId gpulet) const {
  if (!limited_.contains(gpulet)) return OutOfMemory::no;
  const auto directory = gpulet_cgroup(place_, gpulet);
  if (place_.version == CgroupVersion::v2)
    return out_of_memory_v2(read_cgroup_file(directory / "memory.events"));
  const bool counts_swap = file_exists(directory / "memory.memsw.limit_in_bytes");
  const std::string counter = counts_swap ? "memory.memsw." : "memory.";
  return out_of_memory_v1(read_cgroup_file(directory / "memory.oom_control"),
                          read_cgroup_file(directory / (counter + "max_usage_in_bytes")),
                          read_cgroup_file(directory / (counter + "limit_in_bytes")));
}

bool MemoryCgroups::remove(GpuletId gpulet) {
  const bool removed = place_.version == CgroupVersion::v2 || !limited_.contains(gpulet) ||
                       remove_cgroup(gpulet_cgroup(place_, gpulet));
  if (removed) limited_.erase(gpulet);
  return removed;
}

}  // namespace gpulet::partition
