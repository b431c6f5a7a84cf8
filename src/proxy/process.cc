#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

#include "gpulet/proxy/proxy.h"

namespace gpulet::proxy {
namespace {

constexpr const char* kUsage =
    "usage: --control-fd N --memory-fd N --memory-bytes N (started by gpulet-backend)";

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The memory that is shared with the backend, mapped for as long as this lives.
class SharedMemory {
 public:
  static Result<SharedMemory> map(int fd, std::size_t bytes) {
    struct stat file {};
    if (::fstat(fd, &file) != 0) {
      return Status(StatusCode::invalid, "--memory-fd " + std::to_string(fd) + ": " +
                                             std::generic_category().message(errno));
    }
    // Touching a page beyond the file's end would be a SIGBUS in the middle of a batch.
    if (static_cast<std::uint64_t>(file.st_size) < bytes) {
      return Status(StatusCode::invalid, "--memory-bytes " + std::to_string(bytes) +
                                             ": the memory has only " +
                                             std::to_string(file.st_size) + " bytes");
    }
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      return Status(StatusCode::invalid,
                    "--memory-fd " + std::to_string(fd) +
                        ": cannot be mapped: " + std::generic_category().message(errno));
    }
    return SharedMemory({static_cast<std::byte*>(address), bytes});
  }

  SharedMemory(SharedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

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

}  // namespace

Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments) {
  struct Argument {
    std::string_view name;
    std::uint64_t least;
    std::uint64_t most;
    std::optional<std::uint64_t> value;
  };
  constexpr std::uint64_t kMostFd = std::numeric_limits<int>::max();
  std::array<Argument, 3> known{
      Argument{"--control-fd", 0, kMostFd, {}}, Argument{"--memory-fd", 0, kMostFd, {}},
      Argument{"--memory-bytes", 1, std::numeric_limits<std::int64_t>::max(), {}}};
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view name = arguments[i];
    auto argument = known.begin();
    while (argument != known.end() && argument->name != name) ++argument;
    if (argument == known.end()) {
      return Status(StatusCode::invalid, "unknown argument '" + std::string(name) + "'; " + kUsage);
    }
    const std::string_view text = i + 1 < arguments.size() ? arguments[i + 1] : "";
    argument->value = parse_number(text);
    if (!argument->value || *argument->value < argument->least ||
        *argument->value > argument->most) {
      return Status(StatusCode::invalid,
                    std::string(name) + " must be followed by a number, at least " +
                        std::to_string(argument->least) + "; was '" + std::string(text) + "'");
    }
  }
  for (const Argument& argument : known) {
    if (!argument.value)
      return Status(StatusCode::invalid, std::string(argument.name) + " is missing; " + kUsage);
  }
  return ProxyOptions{.control_fd = static_cast<int>(*known[0].value),
                      .memory_fd = static_cast<int>(*known[1].value),
                      .memory_bytes = static_cast<std::size_t>(*known[2].value)};
}

int run(std::span<const char* const> arguments,
        const std::function<std::unique_ptr<executor::Executor>()>& make_executor) {
  constexpr int kFailed = 1;
  constexpr int kBadArguments = 2;
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) std::signal(ignored, SIG_IGN);
  if (!live_and_die_with_parent())
    return fail({StatusCode::cancelled, "the backend ended before its proxy began"}, kFailed);

  const Result<ProxyOptions> options = parse_arguments(arguments);
  if (!options.ok()) return fail(options.status(), kBadArguments);
  const Result<SharedMemory> memory =
      SharedMemory::map(options.value().memory_fd, options.value().memory_bytes);
  if (!memory.ok()) return fail(memory.status(), kBadArguments);
  try {
    const std::unique_ptr<executor::Executor> executor = make_executor();
    const Status served = serve(options.value().control_fd, memory.value().bytes(), *executor);
    return served.ok() ? 0 : fail(served, kFailed);
  } catch (const std::exception& error) {
    return fail({StatusCode::internal, error.what()}, kFailed);
  }
}

}  // namespace gpulet::proxy
