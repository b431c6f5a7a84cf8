#include "gpulet/gpu/ask_cuda.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace gpulet::gpu {
namespace {

constexpr std::size_t kLongestMessage = 600;

// What goes through the pipe. The child is this same program: no wire format.
struct Told {
  StatusCode code = StatusCode::ok;
  std::array<char, kLongestMessage> message{};

  explicit Told(const Status& status) : code(status.code()) {
    const std::size_t length = std::min(status.message().size(), kLongestMessage - 1);
    std::memcpy(message.data(), status.message().data(), length);
  }
  Told() = default;
  [[nodiscard]] Status status() const { return {code, message.data()}; }
};
struct Record {
  Told sms_status;
  Told groups_status;
  std::uint32_t sms = 0;
  SmGroups groups;
};

Record ask(const Result<CudaDriver>& driver, const std::string& uuid) {
  Record record;
  const Result<std::uint32_t> number =
      driver.ok() ? driver.value().number_of(uuid) : Result<std::uint32_t>(driver.status());
  if (!number.ok()) {
    record.sms_status = record.groups_status = Told(number.status());
    return record;
  }
  const Result<std::uint32_t> sms = driver.value().usable_sms(number.value());
  const Result<SmGroups> groups = driver.value().sm_groups(number.value());
  record.sms_status = Told(sms.status());
  record.groups_status = Told(groups.status());
  if (sms.ok()) record.sms = sms.value();
  if (groups.ok()) record.groups = groups.value();
  return record;
}

[[noreturn]] void answer(const CudaQuestion& question, int pipe) {
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", kNoMpsDirectory,
           1);                         // NOLINT(concurrency-mt-unsafe): a child's
  ::unsetenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
  const Result<CudaDriver> driver = CudaDriver::load(question.library);
  for (const std::string& uuid : question.uuids) {
    const Record record = ask(driver, uuid);
    if (::write(pipe, &record, sizeof(record)) != static_cast<ssize_t>(sizeof(record))) break;
  }
  ::_exit(0);  // nothing of the parent's is flushed or destroyed here
}

// Reads up to `size` bytes; fewer where the writer ended or time ran out.
std::size_t read_until(int pipe, void* to, std::size_t size,
                       std::chrono::steady_clock::time_point deadline) {
  std::size_t got = 0;
  while (got < size) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd readable{pipe, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&readable, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t bytes = ::read(pipe, static_cast<char*>(to) + got, size - got);
    if (bytes <= 0) break;
    got += static_cast<std::size_t>(bytes);
  }
  return got;
}

std::vector<CudaAnswer> all_fail(std::size_t count, const Status& why) {
  return std::vector<CudaAnswer>(count, CudaAnswer{why, why});
}

}  // namespace

std::vector<CudaAnswer> ask_cuda(const CudaQuestion& question) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return all_fail(question.uuids.size(),
                    {StatusCode::unavailable, std::string("no pipe: ") + ::strerror(errno)});
  }
  const pid_t child = ::fork();
  if (child == 0) answer(question, ends[1]);
  ::close(ends[1]);
  std::vector<CudaAnswer> answers;
  const auto deadline = std::chrono::steady_clock::now() + question.patience;
  while (child > 0 && answers.size() < question.uuids.size()) {
    Record record;
    if (read_until(ends[0], &record, sizeof(record), deadline) < sizeof(record)) break;
    answers.push_back({record.sms_status.code == StatusCode::ok ? Result<std::uint32_t>(record.sms)
                                                                : record.sms_status.status(),
                       record.groups_status.code == StatusCode::ok
                           ? Result<SmGroups>(record.groups)
                           : record.groups_status.status()});
  }
  ::close(ends[0]);
  if (child > 0) {
    ::kill(child, SIGKILL);  // it has answered, or never will
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const Status silent(StatusCode::unavailable,
                      "CUDA does not tell what this GPU is; look for Xid in the kernel's log, and "
                      "whether another program can use it");
  while (answers.size() < question.uuids.size()) answers.push_back({silent, silent});
  return answers;
}

}  // namespace gpulet::gpu
