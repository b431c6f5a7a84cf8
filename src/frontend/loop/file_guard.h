// FileGuard: reads files that may never answer, such as those of a network mount whose server is
// gone. Each read runs on a thread of the guard. If it makes no progress for the patience, the
// caller goes on with an error, and the thread stays with the file until the system lets it go.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::frontend {

// What a read reports while it runs. Any thread.
class ReadProgress {
 public:
  void advance() { ++steps_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  std::atomic<std::uint64_t> steps_ = 0;
};

// One thread at a time, except stop().
class FileGuard {
 public:
  // More files than that hang: no further ones are read.
  static constexpr std::size_t kMostHanging = 32;

  explicit FileGuard(Duration patience) : patience_(patience) {}
  ~FileGuard();
  FileGuard(const FileGuard&) = delete;
  FileGuard& operator=(const FileGuard&) = delete;

  // The result of `work`. Fails with timeout, naming the file, if it made no progress for the
  // patience, and at once while an earlier read of the file has not ended; with cancelled after
  // stop(). `work` may outlive the guard then, so it owns everything that it refers to.
  template <typename Value, std::invocable<ReadProgress&> Work>
  [[nodiscard]] Result<Value> run(const std::filesystem::path& file, Work work) {
    const auto result = std::make_shared<std::optional<Result<Value>>>();
    const Status ended = run_work(file, [result, work = std::move(work)](ReadProgress& progress) {
      result->emplace(work(progress));
    });
    return ended.ok() ? std::move(**result) : Result<Value>(ended);
  }
  // Whether an earlier read of the file has not ended.
  [[nodiscard]] bool hangs(const std::filesystem::path& file);
  // Ends the wait of run(), and of later calls. Any thread.
  void stop();

 private:
  struct Worker;
  using Work = std::function<void(ReadProgress&)>;

  [[nodiscard]] Status run_work(const std::filesystem::path& file, Work work);
  [[nodiscard]] Status error_of(const std::filesystem::path& file) const;

  const Duration patience_;
  std::shared_ptr<Worker> worker_;  // idle; null: none
  std::thread thread_;              // of worker_
  std::map<std::filesystem::path, std::shared_ptr<Worker>> hanging_;
  std::mutex stop_mutex_;
  std::shared_ptr<Worker> running_;
  bool stopped_ = false;
};

}  // namespace gpulet::frontend
