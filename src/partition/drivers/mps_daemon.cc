#include "gpulet/partition/drivers/mps_daemon.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "partition/drivers/command.h"
#include "partition/drivers/descriptor.h"

namespace gpulet::partition {
namespace {

constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogVariable = "CUDA_MPS_LOG_DIRECTORY";
constexpr const char* kVisibleDevicesVariable = "CUDA_VISIBLE_DEVICES";
constexpr const char* kPidFile = "nvidia-cuda-mps-control.pid";
// The name of a socket has 107 bytes, and the daemon adds up to 20 of its own.
constexpr std::size_t kLongestPipeDirectory = 86;
constexpr Duration kAskAgainAfter = std::chrono::milliseconds(20);

using Clock = std::chrono::steady_clock;

Status unavailable(const std::string& what) { return {StatusCode::unavailable, what}; }

std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> found;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_number = std::all_of(word.begin(), word.end(),
                                       [](unsigned char letter) { return std::isdigit(letter); });
    if (is_number && word.size() < 10) found.push_back(std::stoi(word));
  }
  return found;
}

std::string trimmed(std::string text) {
  const auto is_blank = [](unsigned char letter) { return std::isspace(letter) != 0; };
  while (!text.empty() && is_blank(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

// 0 where the file is not there or holds no number.
pid_t read_pid(const std::filesystem::path& file) {
  pid_t process = 0;
  std::ifstream(file) >> process;
  return process;
}

// Whether that process is the daemon, and not one that got its number after it.
bool is_daemon(pid_t process, const std::filesystem::path& control) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
  std::string line;
  std::getline(file, line);
  return line.find(control.filename().string()) != std::string::npos;
}

}  // namespace

class MpsDaemon::Impl {
 public:
  Impl(MpsOptions options, std::string uuid)
      : options_(std::move(options)),
        uuid_(std::move(uuid)),
        pipes_(options_.directory / uuid_ / "pipe"),
        logs_(options_.directory / uuid_ / "log") {}
  ~Impl() {
    if (started_ && running()) quit();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status start();
  [[nodiscard]] bool adopted() const { return !started_; }
  [[nodiscard]] bool running() const;
  [[nodiscard]] std::map<std::string, std::string> environment() const {
    return {{kPipeVariable, pipes_.string()},
            {kLogVariable, logs_.string()},
            {kVisibleDevicesVariable, uuid_}};
  }

  [[nodiscard]] Result<std::string> ask(const std::string& command) const;
  [[nodiscard]] Result<std::vector<pid_t>> servers() const;
  [[nodiscard]] Result<std::vector<pid_t>> clients_of(pid_t server) const;

 private:
  [[nodiscard]] Status find_control();
  [[nodiscard]] Status make_directory(const std::filesystem::path& directory) const;
  [[nodiscard]] Status make_directories() const;
  [[nodiscard]] Status adopt();
  [[nodiscard]] Status launch();
  [[nodiscard]] Status wait_until_it_answers();
  void watch();
  void quit();
  [[nodiscard]] Command command() const;

  MpsOptions options_;
  const std::string uuid_;
  const std::filesystem::path pipes_;
  const std::filesystem::path logs_;
  Descriptor process_;  // a pidfd; none where the daemon does not say which process it is
  bool started_ = false;
};

Command MpsDaemon::Impl::command() const {
  Command command;
  command.program = options_.control;
  command.environment = environment();
  // A limit meant for somebody else must not become everybody's.
  command.without = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                     "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_SM_PARTITION"};
  command.user = options_.user;
  command.group = options_.group;
  command.patience = options_.patience;
  return command;
}

Status MpsDaemon::Impl::find_control() {
  auto found = find_program(options_.control);
  if (!found.ok()) {
    return unavailable(found.status().message() +
                       "; install the package of NVIDIA's driver that has it (nvidia-cuda-mps on "
                       "Debian, nvidia-compute-utils-<version of the driver> on Ubuntu)");
  }
  options_.control = std::move(found).value();
  return {};
}

Status MpsDaemon::Impl::make_directory(const std::filesystem::path& directory) const {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return unavailable("cannot make the folder " + directory.string() + ": " + error.message() +
                       "; name another one for MPS, or give this user the right to");
  }
  if (!options_.user) return {};
  const auto group = options_.group.value_or(static_cast<gid_t>(-1));
  if (::chown(directory.c_str(), *options_.user, group) != 0) {
    return unavailable("cannot give the folder " + directory.string() + " to user " +
                       std::to_string(*options_.user) + ": " + ::strerror(errno));
  }
  return {};
}

Status MpsDaemon::Impl::make_directories() const {
  auto made = make_directory(pipes_);
  return made.ok() ? make_directory(logs_) : made;
}

Status MpsDaemon::Impl::start() {
  if (pipes_.string().size() > kLongestPipeDirectory) {
    return {StatusCode::invalid,
            "the folder " + pipes_.string() + " has " + std::to_string(pipes_.string().size()) +
                " letters; MPS makes sockets there, which have room for " +
                std::to_string(kLongestPipeDirectory) + ": name a shorter one"};
  }
  if (auto found = find_control(); !found.ok()) return found;
  if (auto made = make_directories(); !made.ok()) return made;
  if (ask("get_server_list").ok()) return adopt();
  return launch();
}

Status MpsDaemon::Impl::adopt() {
  watch();
  const auto percentage = ask("get_default_active_thread_percentage");
  if (!percentage.ok()) return percentage.status();
  double left = 100;
  const bool told = static_cast<bool>(std::istringstream(percentage.value()) >> left);
  if (told && left < 100) {
    return unavailable(
        "the MPS daemon in " + pipes_.string() + " leaves its clients " +
        trimmed(percentage.value()) +
        " % of the GPU; tell it set_default_active_thread_percentage 100, or quit it");
  }
  return {};
}

Status MpsDaemon::Impl::launch() {
  const auto before = read_pid(pipes_ / kPidFile);
  if (before > 0 && is_daemon(before, options_.control)) {
    return unavailable("the MPS daemon in " + pipes_.string() + ", process " +
                       std::to_string(before) + ", does not answer; end it");
  }
  std::error_code ignored;
  std::filesystem::remove_all(pipes_, ignored);
  if (auto made = make_directories(); !made.ok()) return made;
  auto daemon = command();
  daemon.arguments = {"-d"};
  const auto answer = run_command(daemon);
  if (!answer.ok()) return answer.status();
  if (answer.value().exit_code != 0) {
    return unavailable("the MPS daemon of " + uuid_ + " does not start: " +
                       trimmed(answer.value().text) + " (its logs are in " + logs_.string() + ")");
  }
  started_ = true;
  return wait_until_it_answers();
}

Status MpsDaemon::Impl::wait_until_it_answers() {
  const auto deadline = Clock::now() + options_.patience;
  for (;;) {
    const auto answer = ask("get_server_list");
    watch();
    if (answer.ok()) return {};
    if (Clock::now() >= deadline) {
      return unavailable("the MPS daemon of " + uuid_ +
                         " was started and does not answer (its logs are in " + logs_.string() +
                         "): " + answer.status().message());
    }
    std::this_thread::sleep_for(kAskAgainAfter);
  }
}

void MpsDaemon::Impl::watch() {
  const auto process = read_pid(pipes_ / kPidFile);
  if (process > 0) {
    process_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  }
}

bool MpsDaemon::Impl::running() const {
  if (!process_.valid()) return true;
  pollfd ended{process_.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

// Its own bound is for clients that do not let go; nobody's are left by now.
void MpsDaemon::Impl::quit() {
  const auto seconds = std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count());
  static_cast<void>(ask("quit -t " + std::to_string(seconds)));
  if (!process_.valid()) return;
  pollfd ended{process_.get(), POLLIN, 0};
  ::poll(&ended, 1, static_cast<int>(seconds * 1000));
}

Result<std::string> MpsDaemon::Impl::ask(const std::string& what) const {
  auto one = command();
  one.input = what + "\n";
  auto answer = run_command(one);
  if (!answer.ok()) return answer.status().within("MPS, " + what);
  if (answer.value().exit_code != 0) {
    return unavailable("MPS, " + what + ": " + trimmed(answer.value().text));
  }
  return std::move(answer).value().text;
}

Result<std::vector<pid_t>> MpsDaemon::Impl::servers() const {
  const auto answer = ask("get_server_list");
  if (!answer.ok()) return answer.status();
  return pids_in(answer.value());
}

Result<std::vector<pid_t>> MpsDaemon::Impl::clients_of(pid_t server) const {
  const auto answer = ask("get_client_list " + std::to_string(server));
  if (!answer.ok()) return answer.status();
  return pids_in(answer.value());
}

MpsDaemon::MpsDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpsDaemon::MpsDaemon(MpsDaemon&&) noexcept = default;
MpsDaemon& MpsDaemon::operator=(MpsDaemon&&) noexcept = default;
MpsDaemon::~MpsDaemon() = default;

Result<MpsDaemon> MpsDaemon::start(const MpsOptions& options, const std::string& gpu_uuid) {
  auto impl = std::make_unique<Impl>(options, gpu_uuid);
  auto started = impl->start();
  if (!started.ok()) return started;
  return MpsDaemon(std::move(impl));
}

bool MpsDaemon::adopted() const { return impl_->adopted(); }
bool MpsDaemon::running() const { return impl_->running(); }
std::map<std::string, std::string> MpsDaemon::client_environment() const {
  return impl_->environment();
}

// There is one server for a user. Where there are several, the worst of them counts.
Result<MpsServerState> MpsDaemon::state() const {
  const auto servers = impl_->servers();
  if (!servers.ok()) return servers.status();
  auto worst = MpsServerState::none;
  for (const pid_t server : servers.value()) {
    const auto answer = impl_->ask("get_server_status " + std::to_string(server));
    if (!answer.ok()) return answer.status();
    const auto says = [&answer](std::string_view word) {
      return answer.value().find(word) != std::string::npos;
    };
    if (says("FAULT")) return MpsServerState::fault;
    if (says("INITIALIZING")) {
      worst = MpsServerState::initializing;
    } else if (says("ACTIVE")) {
      if (worst == MpsServerState::none) worst = MpsServerState::active;
    } else {
      return unavailable("MPS: server " + std::to_string(server) +
                         " is in a state unknown here: " + trimmed(answer.value()));
    }
  }
  return worst;
}

Result<std::vector<pid_t>> MpsDaemon::clients() const {
  const auto servers = impl_->servers();
  if (!servers.ok()) return servers.status();
  std::vector<pid_t> all;
  for (const pid_t server : servers.value()) {
    const auto clients = impl_->clients_of(server);
    if (!clients.ok()) return clients.status();
    all.insert(all.end(), clients.value().begin(), clients.value().end());
  }
  return all;
}

Status MpsDaemon::terminate(pid_t client) const {
  const auto servers = impl_->servers();
  if (!servers.ok()) return servers.status();
  for (const pid_t server : servers.value()) {
    const auto clients = impl_->clients_of(server);
    if (!clients.ok()) return clients.status();
    const auto& all = clients.value();
    if (std::find(all.begin(), all.end(), client) == all.end()) continue;
    const auto answer =
        impl_->ask("terminate_client " + std::to_string(server) + " " + std::to_string(client));
    if (!answer.ok()) return answer.status();
    const auto said = trimmed(answer.value());
    if (said.empty() || said == "0" || said.find("SUCCESS") != std::string::npos) return {};
    return unavailable("MPS: client " + std::to_string(client) + " was not terminated: " + said);
  }
  return {StatusCode::not_found, "process " + std::to_string(client) + " is no client of MPS"};
}

Result<std::filesystem::path> find_mps_control(const std::filesystem::path& control) {
  return find_program(control);
}

}  // namespace gpulet::partition
