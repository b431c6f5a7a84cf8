#include "tools/serve/proxy_formats.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A LibTorch with CUDA takes seconds to load from a disk for the first time.
constexpr auto kAnswerWithin = std::chrono::seconds(30);
constexpr std::size_t kLongestAnswer = 64U << 10U;

Status no_answer(const std::filesystem::path& program, const std::string& why) {
  return {StatusCode::unavailable,
          fmt::format("{} does not say what it runs: {}", program.string(), why)};
}

// What arrives until the other end closes. Fails with timeout.
Result<std::string> read_all(int descriptor, Duration within) {
  const Clock::time_point until = Clock::now() + within;
  std::string text;
  std::array<char, 4096> block{};
  while (text.size() < kLongestAnswer) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd waiting{descriptor, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0)
      return Status(StatusCode::timeout, "it did not answer in time");
    const ssize_t got = ::read(descriptor, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  return text;
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

Result<std::string> ask(const std::filesystem::path& program) {
  Result<std::string> text = ask_proxy(program, "--formats", {}, kAnswerWithin);
  return text.ok() ? text : no_answer(program, text.status().message());
}

// The answer for one format and device: the line that begins so.
Status find_answer(const std::filesystem::path& program, const Result<std::string>& text,
                   config::FileFormat format, std::string_view device) {
  if (!text.ok()) return text.status();
  const std::string begin = fmt::format("{} {} ", name_of(format), device);
  for (std::string_view rest = text.value(); !rest.empty();) {
    std::string_view line = take_line(rest);
    if (!line.starts_with(begin)) continue;
    line.remove_prefix(begin.size());
    if (line == "yes") return {};
    constexpr std::string_view kNo = "no: ";
    if (line.starts_with(kNo)) line.remove_prefix(kNo.size());
    return {StatusCode::unavailable, std::string(line)};
  }
  return {StatusCode::unavailable,
          fmt::format("{} runs no {} models", program.string(), name_of(format))};
}

}  // namespace

Result<std::string> ask_proxy(const std::filesystem::path& program, std::string option,
                              std::string_view question, Duration within) {
  const auto failed = [](int error) {
    return Status(StatusCode::unavailable, std::generic_category().message(error));
  };
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed(errno);
  const FileDescriptor answer(ends[0]);
  FileDescriptor output(ends[1]);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return failed(errno);
  const FileDescriptor asking(ends[0]);
  FileDescriptor input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program.string();
  const std::array<char*, 3> arguments{name.data(), option.data(), nullptr};
  pid_t process = 0;
  const int error =
      ::posix_spawn(&process, name.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  output.reset();
  input.reset();
  if (error != 0) return failed(error);
  Result<std::string> text = send_all(asking.get(), question)
                                 ? read_all(answer.get(), within)
                                 : Status(StatusCode::unavailable, "it took no question");
  if (!text.ok()) ::kill(process, SIGKILL);
  int ended = 0;
  while (::waitpid(process, &ended, 0) != process) {
  }
  if (text.ok() && ended != 0) return Status(StatusCode::unavailable, "it failed");
  return text;
}

std::string_view name_of(config::FileFormat format) {
  switch (format) {
    case config::FileFormat::onnx:
      return "ONNX";
    case config::FileFormat::torchscript:
      return "TorchScript";
    case config::FileFormat::package:
      break;
  }
  return "AOTInductor";
}

std::vector<FormatSupport> parse_formats(const ProxyPrograms& programs,
                                         const Result<std::string>& of_proxy,
                                         const Result<std::string>& of_onnx) {
  const auto support = [](config::FileFormat format, const std::filesystem::path& program,
                          const Result<std::string>& text) {
    return FormatSupport{format, program, find_answer(program, text, format, "cpu"),
                         find_answer(program, text, format, "cuda")};
  };
  const bool own = !programs.onnx.empty();
  return {support(config::FileFormat::onnx, own ? programs.onnx : programs.proxy,
                  own ? of_onnx : of_proxy),
          support(config::FileFormat::torchscript, programs.proxy, of_proxy),
          support(config::FileFormat::package, programs.proxy, of_proxy)};
}

std::vector<FormatSupport> supported_formats(const ProxyPrograms& programs) {
  const Result<std::string> of_proxy = ask(programs.proxy);
  const bool same = programs.onnx.empty() || programs.onnx == programs.proxy;
  return parse_formats(programs, of_proxy, same ? of_proxy : ask(programs.onnx));
}

}  // namespace gpulet::tools
