#include "partition/drivers/cgroup.h"

#include <fcntl.h>
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

namespace gpulet::partition {
namespace {

constexpr std::string_view kPrefix = "gpulet-";
constexpr std::chrono::microseconds kPeriod{10'000};     // why 10 ms: cpu_quota.h
constexpr std::chrono::microseconds kLeastQuota{1'000};  // the kernel's own bound
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

// mountinfo writes a blank in a path as \040, and so on.
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
  std::string root;  // the part of the hierarchy that is mounted
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

// The process's own path in the hierarchy of that version; empty if it is in none.
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

// Of a cgroup for this process alone.
std::string own_name() { return std::string(kPrefix) + std::to_string(::getpid()) + "-backend"; }

bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

}  // namespace

std::vector<CgroupPlace> find_cgroup_places(std::string_view mountinfo,
                                            std::string_view own_cgroups,
                                            std::string_view controller) {
  std::vector<CgroupPlace> places;
  for (const auto& mount : cgroup_mounts(mountinfo, controller)) {
    const auto path = own_path(own_cgroups, mount.version, controller);
    if (path.empty()) continue;
    // A container sees its own part of the hierarchy mounted, and its path may be told from the
    // host's root.
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

std::filesystem::path gpulet_cgroup(const CgroupPlace& place, GpuletId gpulet) {
  return place.directory /
         (std::string(kPrefix) + std::to_string(::getpid()) + "-" + std::to_string(gpulet.value));
}

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

// Control files must be written by one write call, and must exist.
Status write_cgroup_file(const std::filesystem::path& file, const std::string& text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) ==
                                              static_cast<ssize_t>(text.size());
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (written) return {};
  return {StatusCode::unavailable,
          "cannot write \"" + text + "\" to " + file.string() + ": " + std::strerror(error)};
}

pid_t owner_of_cgroup(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const auto dash = name.find('-');
  if (dash == std::string_view::npos || dash + 1 == name.size()) return 0;
  pid_t owner = 0;
  const auto* end = name.data() + dash;
  const auto parsed = std::from_chars(name.data(), end, owner);
  return parsed.ec == std::errc() && parsed.ptr == end && owner > 0 ? owner : 0;
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
    // Before the cpu controller: below a cgroup with processes that one makes threaded cgroups
    // only, which memory knows nothing of. Shares do without it.
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
                "no cgroup with the cpu controller may be written: " +
                    (tried.empty() ? std::string("none is mounted") : tried) +
                    "; delegate one to this user, or run as root");
}

// A second process of this backend's id cannot exist, so the name 0 is free for the trial.
Status CpuCgroups::prepare() const {
  if (place_.version == CgroupVersion::v2) {
    if (!cgroup_lists(place_.directory / "cgroup.controllers", "cpu")) {
      return {StatusCode::unavailable,
              place_.directory.string() + " does not have the cpu controller"};
    }
    const auto control = place_.directory / "cgroup.subtree_control";
    if (!cgroup_lists(control, "cpu")) {
      auto enabled = write_cgroup_file(control, "+cpu");
      if (!enabled.ok()) return enabled;
    }
  }
  const auto trial =
      place_.directory / (std::string(kPrefix) + std::to_string(::getpid()) + "-trial");
  auto made = make_directory(trial);
  if (!made.ok()) return made;
  const auto* limit = place_.version == CgroupVersion::v2 ? "cpu.max" : "cpu.cfs_quota_us";
  auto writable =
      ::access((trial / limit).c_str(), W_OK) == 0
          ? Status()
          : Status(StatusCode::unavailable, (trial / limit).string() + " cannot be written");
  ::rmdir(trial.c_str());
  return writable;
}

Status CpuCgroups::make_directory(const std::filesystem::path& directory) const {
  ::rmdir(directory.c_str());  // an empty one of a dead process that had this process's id
  if (::mkdir(directory.c_str(), 0755) != 0) {
    return {StatusCode::unavailable,
            "cannot make the cgroup " + directory.string() + ": " + std::strerror(errno)};
  }
  if (place_.version == CgroupVersion::v2 &&
      first_line(directory / "cgroup.type") == "domain invalid") {
    // The parent holds processes itself (this one): below it only threaded cgroups may.
    return write_cgroup_file(directory / "cgroup.type", "threaded");
  }
  return {};
}

Status CpuCgroups::create(GpuletId gpulet) { return make_directory(directory_of(gpulet)); }

Status CpuCgroups::limit(GpuletId gpulet, CpuBandwidth bandwidth) {
  const auto directory = directory_of(gpulet);
  const auto quota = std::to_string(bandwidth.quota.count());
  const auto period = std::to_string(bandwidth.period.count());
  if (place_.version == CgroupVersion::v2)
    return write_cgroup_file(directory / "cpu.max", quota + " " + period);
  const auto quota_file = directory / "cpu.cfs_quota_us";
  const auto period_file = directory / "cpu.cfs_period_us";
  if (first_line(period_file) == period) return write_cgroup_file(quota_file, quota);
  // Period and quota are two files and a moment between them must be legal under the parent's own
  // limit: no quota.
  auto limited = write_cgroup_file(quota_file, "-1");
  if (limited.ok()) limited = write_cgroup_file(period_file, period);
  return limited.ok() ? write_cgroup_file(quota_file, quota) : limited;
}

Status CpuCgroups::weigh(GpuletId gpulet, CpuWeight weight) {
  // A tenth of the usual weight: with the least that there is, anything else that keeps the core
  // busy (a compiler, say) holds up a loading process for minutes.
  const bool low = weight == CpuWeight::low;
  const auto directory = directory_of(gpulet);
  return place_.version == CgroupVersion::v2
             ? write_cgroup_file(directory / "cpu.weight", low ? "10" : "100")
             : write_cgroup_file(directory / "cpu.shares", low ? "102" : "1024");
}

Status CpuCgroups::add(GpuletId gpulet, pid_t process) {
  return write_cgroup_file(directory_of(gpulet) / "cgroup.procs", std::to_string(process));
}

bool CpuCgroups::remove(GpuletId gpulet) {
  return ::rmdir(directory_of(gpulet).c_str()) == 0 || errno != EBUSY;
}

}  // namespace gpulet::partition
