// gpulet-proxy-crashing: a simulated proxy. A batch that contains the byte 255 ends the process by
// SIGSEGV, the byte 254 makes it hang for ever, the byte 253 is an invalid input, and with the byte
// 252 it takes 0.3 s longer. It never ends the first run of a model called "hangs", and takes as
// long to load a model as its name says: 1700 ms for "x-loads-1700".
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "gpulet/executor/simulated_executor.h"
#include "proxy/proxy.h"

namespace {

using namespace gpulet;

class CrashingExecutor final : public executor::Executor {
 public:
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    while (model.name == "hangs") ::pause();
    std::this_thread::sleep_for(load_time(model.name));
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (holds(batch.input, std::byte{255})) {
      ::signal(SIGSEGV, SIG_DFL);  // without the sanitizer's handler
      ::raise(SIGSEGV);
    }
    while (holds(batch.input, std::byte{254})) ::pause();
    if (holds(batch.input, std::byte{253}))
      return Status(StatusCode::invalid, "the model cannot compute this input");
    if (holds(batch.input, std::byte{252})) ::usleep(300'000);
    return simulated_.run(batch);
  }

 private:
  static std::chrono::milliseconds load_time(const std::string& model) {
    constexpr std::string_view kMark = "-loads-";
    const std::size_t mark = model.find(kMark);
    if (mark == std::string::npos) return {};
    return std::chrono::milliseconds(std::atoi(model.c_str() + mark + kMark.size()));
  }
  static bool holds(std::span<const std::byte> input, std::byte what) {
    return std::find(input.begin(), input.end(), what) != input.end();
  }

  executor::SimulatedExecutor simulated_;
};

}  // namespace

int main(int argc, char** argv) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<CrashingExecutor>(); };
  return proxy::run(arguments.subspan(1), program);
}
