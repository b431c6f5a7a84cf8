#include "bench/serve/support/inventory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace gpulet::bench {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool has_mark(const fs::path& process, const std::string& mark) {
  const std::string environment = '\0' + text_of(process / "environ");
  return environment.find('\0' + mark + '\0') != std::string::npos;
}

// The number behind `key` in /proc/PID/status; 0 where it has none.
long status_number(const std::string& status, const std::string& key) {
  const std::size_t at = status.find("\n" + key + ":");
  return at == std::string::npos ? 0
                                 : std::strtol(status.c_str() + at + key.size() + 2, nullptr, 10);
}

std::optional<ProcessFacts> facts_of(const fs::path& process, const std::string& mark) {
  const std::string name = process.filename().string();
  ProcessFacts facts;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), facts.pid);
  if (parsed.ptr != name.data() + name.size() || facts.pid == ::getpid()) return std::nullopt;
  if (!has_mark(process, mark)) return std::nullopt;
  std::error_code gone;
  facts.program = fs::read_symlink(process / "exe", gone).filename().string();
  const std::string status = text_of(process / "status");
  if (gone || status.empty()) return std::nullopt;
  facts.parent = static_cast<pid_t>(status_number(status, "PPid"));
  facts.resident_mb = static_cast<double>(status_number(status, "VmRSS")) / 1024;
  facts.threads = static_cast<std::size_t>(status_number(status, "Threads"));
  const fs::directory_iterator descriptors(process / "fd", gone);
  if (!gone)
    facts.descriptors =
        static_cast<std::size_t>(std::distance(fs::begin(descriptors), fs::end(descriptors)));
  return facts;
}

void add_files(const fs::path& directory, std::set<std::string>& names) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    names.insert(entry.path().string());
}

void add_unix_sockets(std::set<std::string>& names) {
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const std::size_t path = line.find_first_of("/@");
    if (path != std::string::npos) names.insert(line.substr(path));
  }
}

void add_control_groups(std::set<std::string>& names) {
  std::error_code ignored;
  const auto options = fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator groups("/sys/fs/cgroup", options, ignored);
  while (!ignored && groups != fs::recursive_directory_iterator()) {
    const std::string path = groups->path().string();
    if (groups->is_directory(ignored) && path.find("gpulet") != std::string::npos)
      names.insert(path);
    groups.increment(ignored);
  }
}

}  // namespace

std::vector<ProcessFacts> processes_with(const std::string& mark) {
  std::vector<ProcessFacts> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (auto facts = facts_of(entry.path(), mark)) found.push_back(*facts);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return found;
}

std::set<std::string> named_leftovers() {
  std::set<std::string> names;
  add_files("/dev/shm", names);
  add_unix_sockets(names);
  add_control_groups(names);
  std::erase_if(names, [](const auto& name) { return name.find("gpulet") == std::string::npos; });
  return names;
}

}  // namespace gpulet::bench
