#include <fmt/format.h>
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
#include "partition/drivers/mps.h"

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

MpsDaemon::MpsDaemon(MpsOptions options, std::string uuid)
    : options_(std::move(options)),
      uuid_(std::move(uuid)),
      pipes_(options_.directory / uuid_ / "pipe"),
      logs_(options_.directory / uuid_ / "log") {}

MpsDaemon::~MpsDaemon() {
  if (!started_ || !running()) return;
  // The time limit of the command is for remaining clients; by now there are none.
  const auto seconds = std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count());
  static_cast<void>(send(fmt::format("quit -t {}", seconds)));
  if (pidfd_.valid()) static_cast<void>(has_exited(pidfd_, std::chrono::seconds(seconds)));
}

Result<std::unique_ptr<MpsDaemon>> MpsDaemon::start(const MpsOptions& options,
                                                    const std::string& uuid) {
  std::unique_ptr<MpsDaemon> daemon(new MpsDaemon(options, uuid));
  if (Status started = daemon->start(); !started.ok()) return started;
  return Result<std::unique_ptr<MpsDaemon>>(std::move(daemon));
}

std::map<std::string, std::string> MpsDaemon::client_environment() const {
  return {{kPipeVariable, pipes_.string()},
          {kLogVariable, logs_.string()},
          {kVisibleDevicesVariable, uuid_}};
}

Command MpsDaemon::command() const {
  Command command;
  command.program = options_.control;
  command.environment = client_environment();
  // A limit in this environment must not become the limit of all clients.
  command.without = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                     "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_SM_PARTITION"};
  command.user = options_.user;
  command.group = options_.group;
  command.patience = options_.patience;
  return command;
}

Status MpsDaemon::find_control() {
  auto found = find_program(options_.control);
  if (!found.ok()) {
    return unavailable(found.status().message() +
                       "; install it from NVIDIA's driver packages (nvidia-cuda-mps on Debian, "
                       "nvidia-compute-utils-<driver version> on Ubuntu)");
  }
  options_.control = std::move(found).value();
  return {};
}

Status MpsDaemon::make_directories() const {
  for (const auto& directory : {pipes_, logs_}) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      return unavailable(
          fmt::format("cannot create the folder {}: {}; configure another folder for MPS, or give "
                      "this user write access",
                      directory.string(), error.message()));
    }
    if (!options_.user) continue;
    const auto group = options_.group.value_or(static_cast<gid_t>(-1));
    if (::chown(directory.c_str(), *options_.user, group) != 0) {
      return unavailable(fmt::format("cannot change the owner of the folder {} to user {}: {}",
                                     directory.string(), *options_.user, ::strerror(errno)));
    }
  }
  return {};
}

Status MpsDaemon::start() {
  if (pipes_.string().size() > kLongestPipeDirectory) {
    return {
        StatusCode::invalid,
        fmt::format("the path {} has {} bytes, and MPS needs one of at most {} for its sockets; "
                    "configure a shorter folder",
                    pipes_.string(), pipes_.string().size(), kLongestPipeDirectory)};
  }
  if (auto found = find_control(); !found.ok()) return found;
  if (auto made = make_directories(); !made.ok()) return made;
  if (send("get_server_list").ok()) return adopt();
  return launch();
}

Status MpsDaemon::adopt() {
  open_process();
  GPULET_TRY(const auto percentage, send("get_default_active_thread_percentage"));
  double left = 100;
  const bool known = static_cast<bool>(std::istringstream(percentage) >> left);
  if (known && left < 100) {
    return unavailable(
        fmt::format("the MPS daemon in {} limits its clients to {} % of the GPU; send it "
                    "set_default_active_thread_percentage 100, or stop it",
                    pipes_.string(), trimmed(percentage)));
  }
  return {};
}

Status MpsDaemon::launch() {
  const auto before = read_pid(pipes_ / kPidFile);
  if (before > 0 && is_daemon(before, options_.control)) {
    return unavailable(fmt::format("the MPS daemon in {}, process {}, does not answer; stop it",
                                   pipes_.string(), before));
  }
  std::error_code ignored;
  std::filesystem::remove_all(pipes_, ignored);
  if (auto made = make_directories(); !made.ok()) return made;
  auto daemon = command();
  daemon.arguments = {"-d"};
  GPULET_TRY(const auto answer, run_command(daemon));
  if (answer.exit_code != 0) {
    return unavailable(fmt::format("the MPS daemon of {} does not start: {} (its logs are in {})",
                                   uuid_, trimmed(answer.text), logs_.string()));
  }
  started_ = true;
  return wait_until_ready();
}

Status MpsDaemon::wait_until_ready() {
  const auto deadline = Clock::now() + options_.patience;
  for (;;) {
    const auto answer = send("get_server_list");
    open_process();
    if (answer.ok()) return {};
    if (Clock::now() >= deadline) {
      return unavailable(
          fmt::format("the MPS daemon of {} started but does not answer (its logs are in {}): {}",
                      uuid_, logs_.string(), answer.status().message()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void MpsDaemon::open_process() {
  const auto process = read_pid(pipes_ / kPidFile);
  if (process > 0) pidfd_ = open_pidfd(process);
}

bool MpsDaemon::running() const { return !pidfd_.valid() || !has_exited(pidfd_); }

Result<std::string> MpsDaemon::send(const std::string& what) const {
  auto one = command();
  one.input = what + "\n";
  auto answer = run_command(one);
  if (!answer.ok()) return answer.status().within("MPS, " + what);
  if (answer.value().exit_code != 0)
    return unavailable(fmt::format("MPS, {}: {}", what, trimmed(answer.value().text)));
  return std::move(answer).value().text;
}

Result<std::vector<pid_t>> MpsDaemon::list(const std::string& what) const {
  GPULET_TRY(const auto answer, send(what));
  return pids_in(answer);
}

// There is one server per user. Returns the worst state of several.
Result<MpsServerState> MpsDaemon::state() const {
  GPULET_TRY(const auto servers, list("get_server_list"));
  auto worst = MpsServerState::none;
  for (const pid_t server : servers) {
    const auto answer = send(fmt::format("get_server_status {}", server));
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
      return unavailable(fmt::format("MPS: server {} is in an unknown state: {}", server,
                                     trimmed(answer.value())));
    }
  }
  return worst;
}

Status MpsDaemon::terminate(pid_t client) const {
  GPULET_TRY(const auto servers, list("get_server_list"));
  for (const pid_t server : servers) {
    GPULET_TRY(const auto all, list(fmt::format("get_client_list {}", server)));
    if (std::find(all.begin(), all.end(), client) == all.end()) continue;
    GPULET_TRY(const auto answer, send(fmt::format("terminate_client {} {}", server, client)));
    const std::string reply(trimmed(answer));
    if (reply.empty() || reply == "0" || reply.find("SUCCESS") != std::string::npos) return {};
    return unavailable(fmt::format("MPS: client {} was not terminated: {}", client, reply));
  }
  return {StatusCode::not_found, fmt::format("process {} is not a client of MPS", client)};
}

Result<std::filesystem::path> find_mps_control(const std::filesystem::path& control) {
  return find_program(control);
}

}  // namespace gpulet::partition
