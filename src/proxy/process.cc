#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/text.h"
#include "gpulet/confine/confine.h"
#include "gpulet/partition/driver.h"
#include "gpulet/protocol/proxy_messages.h"
#include "proxy/channel.h"
#include "proxy/proxy.h"
#include "proxy/workers.h"

namespace gpulet::proxy {
namespace {

constexpr const char* kUsage =
    "usage: --control-fd N --memory-fd N [--files-fd N], or --lanes-fd N (started by "
    "gpulet-backend)";

// Returns false if the parent has already ended: no signal will report that.
bool die_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(SIGKILL), 0UL, 0UL, 0UL);
  return ::getppid() == parent;
}

bool asks_for_output_shapes(std::span<const char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--output-shapes";
  });
}

Result<std::vector<std::vector<std::int64_t>>> output_shapes(const Program& program) {
  if (program.find_output_shapes == nullptr)
    return Status(StatusCode::unavailable, "this program runs no samples");
  GPULET_TRY(const auto command, read_command(STDIN_FILENO));
  const auto* const load = command ? std::get_if<LoadModels>(&*command) : nullptr;
  if (load == nullptr || load->models.size() != 1)
    return Status(StatusCode::malformed, "it was asked for no model");
  return program.find_output_shapes(load->models.front());
}

std::string text_of(const Result<std::vector<std::vector<std::int64_t>>>& shapes) {
  if (!shapes.ok()) {
    std::string why = shapes.status().message();
    std::replace(why.begin(), why.end(), '\n', ' ');
    return "failed: " + why + '\n';
  }
  std::string text = "ok\n";
  for (const std::vector<std::int64_t>& shape : shapes.value()) {
    for (std::size_t i = 0; i < shape.size(); ++i)
      text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    text += '\n';
  }
  return text;
}

int fail(const Status& status, int exit_code) {
  std::fprintf(stderr, "gpulet-proxy[%d]: %s\n", static_cast<int>(::getpid()),
               status.to_string().c_str());
  return exit_code;
}

// Logs a missing part of the sandbox. The proxy serves without it.
void log_missing(const Status& missing) {
  if (!missing.ok()) fail(missing.within("not confined"), 0);
}

// On a CPU the proxy needs no socket but its channel, and no files of its own. On a GPU it keeps
// both: CUDA has caches, and reaches MPS through Unix sockets and shared memory.
void give_up_sockets_and_new_files() {
  if (!environment_variable(partition::kDeviceVariable).empty()) return;
  log_missing(confine::filter_sockets_and_new_files());
}

// Gives up rights before the executor is made, so that models are loaded inside the whole sandbox.
Program confined(const Program& program) {
  Program inside = program;
  inside.make_executor = [make = program.make_executor] {
    give_up_sockets_and_new_files();
    return make();
  };
  if (program.make_shared_device != nullptr) {
    inside.make_shared_device = [make = program.make_shared_device] {
      give_up_sockets_and_new_files();
      return make();
    };
  }
  return inside;
}

Status serve_program(const ProxyOptions& options, const Program& program, int exit_code_of_loss) {
  if (options.workers_fd < 0) return serve(options, program);
  const WorkerEvents events{
      // Calls of other workers to a lost device may never return, so it does not wait for them.
      .device_lost =
          [exit_code_of_loss](const Status& why) {
            ::_exit(fail(why.within("the device is lost"), exit_code_of_loss));
          },
      .worker_failed = [](const Status& why) { fail(why.within("a worker"), 0); }};
  return serve_workers({.workers_fd = options.workers_fd}, program, events);
}

}  // namespace

Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments) {
  const auto is_descriptor = [](const std::string& text) {
    const bool right = parse_number<int>(text).value_or(-1) >= 0;
    return right ? std::string() : "takes a file descriptor's number; was '" + text + "'";
  };
  ProxyOptions options;
  CLI::App app;
  app.set_help_flag();
  const auto add = [&](const std::string& name, int& value) {
    return app.add_option(name, value)->check(is_descriptor)->take_last();
  };
  CLI::Option* const control = add("--control-fd", options.control_fd);
  CLI::Option* const memory = add("--memory-fd", options.memory_fd)->needs(control);
  CLI::Option* const files = add("--files-fd", options.files_fd)->needs(control);
  control->needs(memory);
  CLI::Option* const lanes =
      add("--lanes-fd", options.workers_fd)->excludes(control)->excludes(files);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return Status(StatusCode::invalid, std::string(error.what()) + "; " + kUsage);
  }
  if (control->count() + lanes->count() > 0) return options;
  return Status(StatusCode::invalid, std::string("--control-fd is missing; ") + kUsage);
}

int run(std::span<const char* const> arguments, const Program& program) {
  constexpr int kFailed = 1;
  constexpr int kBadArguments = 2;
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) std::signal(ignored, SIG_IGN);
  const bool sandbox = environment_variable(confine::kSandboxVariable) != "off";
  // First, because entering a user namespace would undo the settings below.
  if (sandbox) log_missing(confine::leave_network(environment_variable(confine::kNetworkVariable)));
  if (!die_with_parent())
    return fail({StatusCode::cancelled, "the backend ended before its proxy started"}, kFailed);
  // Proxies of one user hold tensors of different clients, and a model may run any code: no proxy
  // may read another. The backend cannot set this, because exec resets it.
  confine::close_to_others();
  if (sandbox) log_missing(confine::filter_system_calls());

  if (asks_for_output_shapes(arguments)) {
    if (program.prepare != nullptr) program.prepare();
    if (sandbox) give_up_sockets_and_new_files();
    std::fputs(text_of(output_shapes(program)).c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kFailed;
  }
  const Result<ProxyOptions> options = parse_arguments(arguments);
  if (!options.ok()) return fail(options.status(), kBadArguments);
  try {
    const Status served =
        serve_program(options.value(), sandbox ? confined(program) : program, kFailed);
    return served.ok() ? 0 : fail(served, kFailed);
  } catch (const std::exception& error) {
    return fail({StatusCode::internal, error.what()}, kFailed);
  }
}

}  // namespace gpulet::proxy
