#include "backend/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "backend/file_descriptor.h"

namespace gpulet::backend {
namespace {

constexpr int kFirstDescriptor = 3;
constexpr int kBackgroundNice = 19;  // the least weight: what is left over

// Priorities belong to threads here: id_t 0 is the calling one.
int own_nice() { return ::getpriority(PRIO_PROCESS, 0); }
bool set_nice(id_t thread, int nice) { return ::setpriority(PRIO_PROCESS, thread, nice) == 0; }

// Lowering a priority is anybody's right, raising it again is not: a thread of its own tries.
bool may_raise_priority() {
  bool raised = false;
  std::thread([&raised, nice = own_nice()] {
    raised = set_nice(0, nice + 1) && set_nice(0, nice);
  }).join();
  return raised;
}

// The calling thread's priority for as long as this lives: a child inherits it.
class LoweredPriority {
 public:
  LoweredPriority() : before_(own_nice()) { set_nice(0, before_ + kBackgroundNice); }
  ~LoweredPriority() { set_nice(0, before_); }
  LoweredPriority(const LoweredPriority&) = delete;
  LoweredPriority& operator=(const LoweredPriority&) = delete;

 private:
  const int before_;
};

// The strings "NAME=value" of this process with the given ones on top.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& on_top) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!on_top.contains(name)) merged.emplace_back(text);
  }
  for (const auto& [name, value] : on_top) {
    std::string& entry = merged.emplace_back(name);
    entry += '=';
    entry += value;
  }
  return merged;
}

std::vector<char*> as_pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_,
        static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<pid_t> spawn(const SpawnOptions& options) {
  const auto failed = [&](int error) {
    return Status(error == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
                  "cannot start " + options.program.string() + ": " + ::strerror(error));
  };
  FileActions actions;
  // Copies above every target: a target number that is another one's source would be overwritten
  // before its turn.
  const int past_last = kFirstDescriptor + static_cast<int>(options.descriptors.size());
  std::vector<FileDescriptor> sources;
  for (const int descriptor : options.descriptors) {
    sources.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, past_last));
    if (!sources.back().valid()) return failed(errno);
    const int target = kFirstDescriptor + static_cast<int>(sources.size()) - 1;
    posix_spawn_file_actions_adddup2(actions.get(), sources.back().get(), target);
  }
  posix_spawn_file_actions_addclosefrom_np(actions.get(), past_last);

  std::vector<std::string> arguments{options.program.string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  auto environment = merged_environment(options.environment);
  Attributes attributes;
  std::optional<LoweredPriority> lowered;
  if (options.in_background && may_raise_priority()) lowered.emplace();
  pid_t process = 0;
  const int error = posix_spawn(&process, options.program.c_str(), actions.get(), attributes.get(),
                                as_pointers(arguments).data(), as_pointers(environment).data());
  if (error != 0) return failed(error);
  return process;
}

void raise_priority(pid_t process) {
  const int nice = own_nice();
  std::error_code error;
  const auto tasks = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto thread = std::strtoul(entry->path().filename().c_str(), nullptr, 10);
    set_nice(static_cast<id_t>(thread), nice);  // a thread that has just ended needs none
  }
}

Status describe_end(pid_t process, int wait_status) {
  const auto name = "process " + std::to_string(process);
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return {StatusCode::unavailable, name + " was killed by signal " + std::to_string(signal) +
                                         " (" + ::strsignal(signal) + ")"};
  }
  if (WEXITSTATUS(wait_status) == 0) return {};
  return {StatusCode::unavailable,
          name + " ended with exit code " + std::to_string(WEXITSTATUS(wait_status))};
}

}  // namespace gpulet::backend
