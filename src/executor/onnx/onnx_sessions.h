// OnnxSessions: the sessions of ONNX Runtime of one executor. Models of one file share a session,
// and so its weights and its working memory: these are the buckets of a model with dynamic
// dimensions. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "executor/onnx/onnx_library.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

struct OnnxTarget {
  std::optional<std::uint32_t> gpu{};  // empty: the CPU
  int threads = 1;                     // inside one operation
  bool spins = true;                   // threads that wait for work inside a batch
};

class OnnxSessions {
 public:
  explicit OnnxSessions(const OnnxTarget& target) : target_(target) {}

  [[nodiscard]] const OnnxTarget& target() const { return target_; }

  // The session over the file, which is open as long as somebody holds it. Fails as Executor::load.
  [[nodiscard]] Result<std::shared_ptr<onnx_abi::Session>> open(const OnnxLibrary& library,
                                                                const std::filesystem::path& file);
  // Later calls of open() do not return sessions over this path that are open now.
  void forget(const std::filesystem::path& file);

 private:
  // A file with another size or time is another one.
  using Identity =
      std::tuple<std::filesystem::path, std::uintmax_t, std::filesystem::file_time_type>;

  const OnnxTarget target_;
  std::map<Identity, std::weak_ptr<onnx_abi::Session>> sessions_;
};

}  // namespace gpulet::executor
