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
#include <string>

#include "gpulet/base/files.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {
namespace {

constexpr std::size_t kLongestMessage = 600;

// The records in the pipe. Parent and child are the same program, so they need no wire format.
struct StatusRecord {
  StatusCode code = StatusCode::ok;
  std::array<char, kLongestMessage> message{};

  explicit StatusRecord(const Status& status) : code(status.code()) {
    const std::size_t length = std::min(status.message().size(), kLongestMessage - 1);
    std::memcpy(message.data(), status.message().data(), length);
  }
  StatusRecord() = default;
  [[nodiscard]] Status status() const { return {code, message.data()}; }
};
struct QueryRecord {
  StatusRecord sms_status;
  StatusRecord groups_status;
  std::uint32_t sms = 0;
  SmGroups groups;
};

QueryRecord query_gpu(const Result<CudaDriver>& driver, const std::string& uuid) {
  QueryRecord record;
  const Result<std::uint32_t> number =
      driver.ok() ? driver.value().number_of(uuid) : Result<std::uint32_t>(driver.status());
  if (!number.ok()) {
    record.sms_status = record.groups_status = StatusRecord(number.status());
    return record;
  }
  const Result<std::uint32_t> sms = driver.value().usable_sms(number.value());
  const Result<SmGroups> groups = driver.value().sm_groups(number.value());
  record.sms_status = StatusRecord(sms.status());
  record.groups_status = StatusRecord(groups.status());
  if (sms.ok()) record.sms = sms.value();
  if (groups.ok()) record.groups = groups.value();
  return record;
}

[[noreturn]] void run_child(const CudaQuery& query, int pipe) {
  // The environment is the child's own.
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", kNoMpsDirectory, 1);  // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("CUDA_VISIBLE_DEVICES");                       // NOLINT(concurrency-mt-unsafe)
  const Result<CudaDriver> driver = CudaDriver::load(query.library);
  for (const std::string& uuid : query.uuids) {
    const QueryRecord record = query_gpu(driver, uuid);
    if (::write(pipe, &record, sizeof(record)) != static_cast<ssize_t>(sizeof(record))) break;
  }
  ::_exit(0);  // without flushing or destroying the parent's objects
}

// Reads up to `size` bytes; fewer at the end of the stream or at the deadline.
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

std::vector<CudaQueryResult> all_fail(std::size_t count, const Status& why) {
  return std::vector<CudaQueryResult>(count, CudaQueryResult{why, why});
}

}  // namespace

std::vector<CudaQueryResult> query_cuda(const CudaQuery& query) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return all_fail(
        query.uuids.size(),
        {StatusCode::unavailable, std::string("cannot create a pipe: ") + ::strerror(errno)});
  }
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) run_child(query, write_end.get());
  write_end.reset();
  std::vector<CudaQueryResult> results;
  const auto deadline = std::chrono::steady_clock::now() + query.patience;
  while (child > 0 && results.size() < query.uuids.size()) {
    QueryRecord record;
    if (read_until(read_end.get(), &record, sizeof(record), deadline) < sizeof(record)) break;
    results.push_back({record.sms_status.code == StatusCode::ok ? Result<std::uint32_t>(record.sms)
                                                                : record.sms_status.status(),
                       record.groups_status.code == StatusCode::ok
                           ? Result<SmGroups>(record.groups)
                           : record.groups_status.status()});
  }
  if (child > 0) {
    ::kill(child, SIGKILL);  // it has finished or hangs
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const Status silent(
      StatusCode::unavailable,
      "CUDA does not respond for this GPU; check the kernel log for Xid errors, and "
      "whether another program can use it");
  while (results.size() < query.uuids.size()) results.push_back({silent, silent});
  return results;
}

}  // namespace gpulet::gpu
