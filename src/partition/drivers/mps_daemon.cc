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

#include "gpulet/base/text.h"
#include "partition/drivers/command.h"
#include "partition/drivers/mps.h"
#include "partition/drivers/process_control.h"

namespace gpulet::partition {
namespace {

constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogVariable = "CUDA_MPS_LOG_DIRECTORY";
constexpr const char* kVisibleDevicesVariable = "CUDA_VISIBLE_DEVICES";
constexpr const char* kPidFile = "nvidia-cuda-mps-control.pid";
// A socket path has at most 107 bytes, and the daemon appends up to 20.
constexpr std::size_t kLongestPipeDirectory = 86;
constexpr Duration kPollInterval = std::chrono::milliseconds(20);

using Clock = std::chrono::steady_clock;

Status unavailable(const std::string& what) { return {StatusCode::unavailable, what}; }

std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> found;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto process = parse_number<pid_t>(word);
    if (process && *process > 0) found.push_back(*process);
  }
  return found;
}

// 0 where the file does not exist or has no number.
pid_t read_pid(const std::filesystem::path& file) {
  pid_t process = 0;
  std::ifstream(file) >> process;
  return process;
}

// Whether that process is the daemon and not another one that reused its id.
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

  [[nodiscard]] Result<std::string> send(const std::string& command) const;
  [[nodiscard]] Result<std::vector<pid_t>> servers() const;
  [[nodiscard]] Result<std::vector<pid_t>> clients_of(pid_t server) const;

 private:
  [[nodiscard]] Status find_control();
  [[nodiscard]] Status make_directory(const std::filesystem::path& directory) const;
  [[nodiscard]] Status make_directories() const;
  [[nodiscard]] Status adopt();
  [[nodiscard]] Status launch();
  [[nodiscard]] Status wait_until_ready();
  void open_process();
  void quit();
  [[nodiscard]] Command command() const;

  MpsOptions options_;
  const std::string uuid_;
  const std::filesystem::path pipes_;
  const std::filesystem::path logs_;
  FileDescriptor pidfd_;  // invalid where the daemon's process id is unknown
  bool started_ = false;
};

Command MpsDaemon::Impl::command() const {
  Command command;
  command.program = options_.control;
  command.environment = environment();
  // A limit in this environment must not become the limit of all clients.
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
                       "; install it from NVIDIA's driver packages (nvidia-cuda-mps on Debian, "
                       "nvidia-compute-utils-<driver version> on Ubuntu)");
  }
  options_.control = std::move(found).value();
  return {};
}

Status MpsDaemon::Impl::make_directory(const std::filesystem::path& directory) const {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return unavailable("cannot create the folder " + directory.string() + ": " + error.message() +
                       "; configure another folder for MPS, or give this user write access");
  }
  if (!options_.user) return {};
  const auto group = options_.group.value_or(static_cast<gid_t>(-1));
  if (::chown(directory.c_str(), *options_.user, group) != 0) {
    return unavailable("cannot change the owner of the folder " + directory.string() + " to user " +
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
            "the path " + pipes_.string() + " has " + std::to_string(pipes_.string().size()) +
                " bytes, and MPS needs one of at most " + std::to_string(kLongestPipeDirectory) +
                " for its sockets; configure a shorter folder"};
  }
  if (auto found = find_control(); !found.ok()) return found;
  if (auto made = make_directories(); !made.ok()) return made;
  if (send("get_server_list").ok()) return adopt();
  return launch();
}

Status MpsDaemon::Impl::adopt() {
  open_process();
  const auto percentage = send("get_default_active_thread_percentage");
  if (!percentage.ok()) return percentage.status();
  double left = 100;
  const bool known = static_cast<bool>(std::istringstream(percentage.value()) >> left);
  if (known && left < 100) {
    return unavailable(
        "the MPS daemon in " + pipes_.string() + " limits its clients to " +
        std::string(trimmed(percentage.value())) +
        " % of the GPU; send it set_default_active_thread_percentage 100, or stop it");
  }
  return {};
}

Status MpsDaemon::Impl::launch() {
  const auto before = read_pid(pipes_ / kPidFile);
  if (before > 0 && is_daemon(before, options_.control)) {
    return unavailable("the MPS daemon in " + pipes_.string() + ", process " +
                       std::to_string(before) + ", does not answer; stop it");
  }
  std::error_code ignored;
  std::filesystem::remove_all(pipes_, ignored);
  if (auto made = make_directories(); !made.ok()) return made;
  auto daemon = command();
  daemon.arguments = {"-d"};
  const auto answer = run_command(daemon);
  if (!answer.ok()) return answer.status();
  if (answer.value().exit_code != 0) {
    return unavailable("the MPS daemon of " + uuid_ +
                       " does not start: " + std::string(trimmed(answer.value().text)) +
                       " (its logs are in " + logs_.string() + ")");
  }
  started_ = true;
  return wait_until_ready();
}

Status MpsDaemon::Impl::wait_until_ready() {
  const auto deadline = Clock::now() + options_.patience;
  for (;;) {
    const auto answer = send("get_server_list");
    open_process();
    if (answer.ok()) return {};
    if (Clock::now() >= deadline) {
      return unavailable("the MPS daemon of " + uuid_ +
                         " started but does not answer (its logs are in " + logs_.string() +
                         "): " + answer.status().message());
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void MpsDaemon::Impl::open_process() {
  const auto process = read_pid(pipes_ / kPidFile);
  if (process > 0) {
    pidfd_ = open_pidfd(process);
  }
}

bool MpsDaemon::Impl::running() const { return !pidfd_.valid() || !has_exited(pidfd_); }

// The time limit of the command is for remaining clients; by now there are none.
void MpsDaemon::Impl::quit() {
  const auto seconds = std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count());
  static_cast<void>(send("quit -t " + std::to_string(seconds)));
  if (pidfd_.valid()) static_cast<void>(has_exited(pidfd_, std::chrono::seconds(seconds)));
}

Result<std::string> MpsDaemon::Impl::send(const std::string& what) const {
  auto one = command();
  one.input = what + "\n";
  auto answer = run_command(one);
  if (!answer.ok()) return answer.status().within("MPS, " + what);
  if (answer.value().exit_code != 0) {
    return unavailable("MPS, " + what + ": " + std::string(trimmed(answer.value().text)));
  }
  return std::move(answer).value().text;
}

Result<std::vector<pid_t>> MpsDaemon::Impl::servers() const {
  const auto answer = send("get_server_list");
  if (!answer.ok()) return answer.status();
  return pids_in(answer.value());
}

Result<std::vector<pid_t>> MpsDaemon::Impl::clients_of(pid_t server) const {
  const auto answer = send("get_client_list " + std::to_string(server));
  if (!answer.ok()) return answer.status();
  return pids_in(answer.value());
}

MpsDaemon::MpsDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpsDaemon::MpsDaemon(MpsDaemon&&) noexcept = default;
MpsDaemon& MpsDaemon::operator=(MpsDaemon&&) noexcept = default;
MpsDaemon::~MpsDaemon() = default;

Result<MpsDaemon> MpsDaemon::start(const MpsOptions& options, const std::string& uuid) {
  auto impl = std::make_unique<Impl>(options, uuid);
  auto started = impl->start();
  if (!started.ok()) return started;
  return MpsDaemon(std::move(impl));
}

bool MpsDaemon::adopted() const { return impl_->adopted(); }
bool MpsDaemon::running() const { return impl_->running(); }
std::map<std::string, std::string> MpsDaemon::client_environment() const {
  return impl_->environment();
}

// There is one server per user. Returns the worst state of several.
Result<MpsServerState> MpsDaemon::state() const {
  const auto servers = impl_->servers();
  if (!servers.ok()) return servers.status();
  auto worst = MpsServerState::none;
  for (const pid_t server : servers.value()) {
    const auto answer = impl_->send("get_server_status " + std::to_string(server));
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
                         " is in an unknown state: " + std::string(trimmed(answer.value())));
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
        impl_->send("terminate_client " + std::to_string(server) + " " + std::to_string(client));
    if (!answer.ok()) return answer.status();
    const std::string reply(trimmed(answer.value()));
    if (reply.empty() || reply == "0" || reply.find("SUCCESS") != std::string::npos) return {};
    return unavailable("MPS: client " + std::to_string(client) + " was not terminated: " + reply);
  }
  return {StatusCode::not_found, "process " + std::to_string(client) + " is not a client of MPS"};
}

Result<std::filesystem::path> find_mps_control(const std::filesystem::path& control) {
  return find_program(control);
}

}  // namespace gpulet::partition
