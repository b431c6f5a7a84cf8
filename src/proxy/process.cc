#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulet/confine/confine.h"
#include "gpulet/partition/driver.h"
#include "gpulet/proxy/proxy.h"
#include "proxy/lanes.h"

namespace gpulet::proxy {
namespace {

constexpr const char* kUsage =
    "usage: --control-fd N --memory-fd N [--files-fd N], or --lanes-fd N (started by "
    "gpulet-backend)";

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// False where the parent is gone already: the signal for its end will not come then.
bool live_and_die_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(SIGKILL), 0UL, 0UL, 0UL);
  return ::getppid() == parent;
}

int fail(const Status& status, int exit_code) {
  std::fprintf(stderr, "gpulet-proxy[%d]: %s\n", static_cast<int>(::getpid()),
               status.to_string().c_str());
  return exit_code;
}

// What of the sandbox is missing; it is no reason not to serve.
void tell(const Status& missing) {
  if (!missing.ok()) fail(missing.within("not confined"), 0);
}

std::string_view variable(const char* name) {
  const char* const value = ::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? "" : value;
}

// A CPU needs no socket but the channel. CUDA speaks to MPS over sockets of the file system, so a
// device keeps those.
void leave_sockets() {
  if (!variable(partition::kDeviceVariable).empty()) return;
  if (const Status left = confine::filter_sockets(); !left.ok()) tell(left);
}

// The program's models get the sandbox as well: nothing is left to be given up once they are read.
Program confined(const Program& program) {
  Program inside = program;
  inside.make_executor = [make = program.make_executor] {
    leave_sockets();
    return make();
  };
  if (program.make_shared_device != nullptr) {
    inside.make_shared_device = [make = program.make_shared_device] {
      leave_sockets();
      return make();
    };
  }
  return inside;
}

Status serve_all(const ProxyOptions& options, const Program& program, int exit_code_of_loss) {
  if (options.lanes_fd < 0) return serve(options, program);
  const LaneEvents events{
      // The other lanes' calls may never return from a device that is lost: nobody waits for them.
      .device_lost =
          [exit_code_of_loss](const Status& why) {
            ::_exit(fail(why.within("the device is lost"), exit_code_of_loss));
          },
      .lane_failed = [](const Status& why) { fail(why.within("a lane"), 0); }};
  return serve_lanes({.lanes_fd = options.lanes_fd}, program, events);
}

}  // namespace

Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments) {
  struct Argument {
    std::string_view name;
    std::optional<std::uint64_t> value;
  };
  constexpr std::uint64_t kMostFd = std::numeric_limits<int>::max();
  std::array<Argument, 4> known{Argument{"--control-fd", {}}, Argument{"--memory-fd", {}},
                                Argument{"--files-fd", {}}, Argument{"--lanes-fd", {}}};
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view name = arguments[i];
    auto argument = known.begin();
    while (argument != known.end() && argument->name != name) ++argument;
    if (argument == known.end()) {
      return Status(StatusCode::invalid, "unknown argument '" + std::string(name) + "'; " + kUsage);
    }
    const std::string_view text = i + 1 < arguments.size() ? arguments[i + 1] : "";
    argument->value = parse_number(text);
    if (!argument->value || *argument->value > kMostFd) {
      return Status(StatusCode::invalid, std::string(name) +
                                             " must be followed by a descriptor's number; was '" +
                                             std::string(text) + "'");
    }
  }
  if (known[3].value) {
    const bool alone = !known[0].value && !known[1].value && !known[2].value;
    if (alone) return ProxyOptions{.lanes_fd = static_cast<int>(*known[3].value)};
    return Status(StatusCode::invalid,
                  std::string("--lanes-fd takes the place of the others; ") + kUsage);
  }
  for (const Argument& argument : std::span(known).first<2>()) {
    if (!argument.value)
      return Status(StatusCode::invalid, std::string(argument.name) + " is missing; " + kUsage);
  }
  return ProxyOptions{.control_fd = static_cast<int>(*known[0].value),
                      .memory_fd = static_cast<int>(*known[1].value),
                      .files_fd = known[2].value ? static_cast<int>(*known[2].value) : -1};
}

int run(std::span<const char* const> arguments, const Program& program) {
  constexpr int kFailed = 1;
  constexpr int kBadArguments = 2;
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) std::signal(ignored, SIG_IGN);
  const bool sandbox = variable(confine::kSandboxVariable) != "off";
  // Another user namespace would undo what is set below.
  if (sandbox) tell(confine::leave_network(variable(confine::kNetworkVariable)));
  if (!live_and_die_with_parent())
    return fail({StatusCode::cancelled, "the backend ended before its proxy began"}, kFailed);
  // Proxies of one user hold tensors of different clients: none may look into another, whatever a
  // model does. A new program begins open, so the backend cannot do this in its place.
  confine::close_to_others();
  if (sandbox) tell(confine::filter_system_calls());

  const Result<ProxyOptions> options = parse_arguments(arguments);
  if (!options.ok()) return fail(options.status(), kBadArguments);
  try {
    const Status served =
        serve_all(options.value(), sandbox ? confined(program) : program, kFailed);
    return served.ok() ? 0 : fail(served, kFailed);
  } catch (const std::exception& error) {
    return fail({StatusCode::internal, error.what()}, kFailed);
  }
}

}  // namespace gpulet::proxy
