#include "executor/torch/process.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "gpulet/base/bytes.h"

namespace gpulet::executor {
namespace {

// The heap to map before a model is known: as much as loading mobilenet_v2 needs.
constexpr std::size_t kHeapWithoutModel = 64 * kBytesPerMegabyte;
// The most memory that is mapped in advance for batches.
constexpr std::size_t kMostSpareHeap = 512 * kBytesPerMegabyte;
constexpr std::size_t kSpareHeapToKeep = 32 * kBytesPerMegabyte;

int intra_op_threads() {
  const char* text =
      std::getenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  // OpenBLAS read its environment when the program started, possibly before the share was known.
  using SetThreads = void (*)(int);
  if (auto* const set =
          reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
  try {
    at::set_num_interop_threads(1);
  } catch (const std::exception&) {
    // It can be set once per process and was set before.
  }
}

void set_cpu_modes() {
  // On the CPU the profiling executor is no faster than the simple one (measured on all example
  // models), and it makes the first two batches of a model slow instead of one.
  torch::jit::getExecutorMode() = false;
  torch::jit::getProfilingMode() = false;
  // Keeps freed memory for the next batch. By default the C library returns large blocks to the
  // kernel and page-faults them in again, which takes a third of the time of a batch of 8 on
  // mobilenet_v2 and ssd_mobilenet_v1.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

// On a GPU the simple executor, which prepare_process() may have chosen, fuses operators into
// kernels that it compiles for each new size while batches wait, and that fail for some networks.
// The other executor does so from profiles; without them it runs the graph as it was rewritten at
// load time.
void set_device_modes() {
  torch::jit::getExecutorMode() = true;
  torch::jit::getProfilingMode() = false;
}

// Touches each page once: the kernel maps it then, which takes microseconds per page.
void map_heap(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(bytes), &std::free);
  if (memory == nullptr) return;
  auto* const begin = static_cast<volatile char*>(memory.get());
  for (std::size_t at = 0; at < bytes; at += page) begin[at] = 0;
}

// A model with one of each operator that image models commonly use.
torch::jit::Module small_model() {
  torch::jit::Module model("small");
  model.register_parameter("filters", torch::ones({8, 3, 3, 3}), false);
  model.register_parameter("depthwise", torch::ones({8, 1, 3, 3}), false);
  model.register_parameter("weights", torch::ones({4, 8}), false);
  model.register_buffer("mean", torch::zeros({8}));
  model.register_buffer("variance", torch::ones({8}));
  model.define(R"(
def forward(self, x):
    x = torch.conv2d(x, self.filters, None, [2, 2], [1, 1])
    x = torch.batch_norm(x, None, None, self.mean, self.variance, False, 0.1, 1e-5, True)
    x = torch.conv2d(torch.relu(x), self.depthwise, None, [1, 1], [1, 1], [1, 1], 8)
    x = torch.adaptive_avg_pool2d(torch.max_pool2d(x, [2, 2], [2, 2]), [1, 1])
    return torch.linear(torch.flatten(x, 1), self.weights, None)
)");
  model.eval();
  return model;
}

// The type of the totals: signed in LibTorch 1, unsigned in LibTorch 2.
template <typename Total>
Total total_of(void (c10::MemoryReportingInfoBase::*)(void*, std::int64_t, Total, Total,
                                                      c10::Device));
using TotalBytes = decltype(total_of(&c10::MemoryReportingInfoBase::reportMemoryUsage));

class PeakCounter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t bytes, TotalBytes /*allocated*/,
                         TotalBytes /*reserved*/, c10::Device device) override {
    if (!device.is_cpu()) return;
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::size_t peak() const { return static_cast<std::size_t>(peak_); }

 private:
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

int configure_process(const c10::Device& device) {
  const int threads = intra_op_threads();
  set_threads(threads);
  if (device.is_cpu()) {
    set_cpu_modes();
  } else {
    set_device_modes();
  }
  return threads;
}

std::size_t peak_tensor_bytes(const std::function<void()>& work) {
  const auto counter = std::make_shared<PeakCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  work();
  return counter->peak();
}

void settle_heap(std::size_t bytes) {
  const std::size_t mapped = std::min(bytes, kMostSpareHeap);
  if (::mallinfo2().fordblks > mapped + kSpareHeapToKeep) ::malloc_trim(0);
  map_heap(mapped);
}

void prepare_process() {
  set_threads(1);  // the share decides later how many threads there may be
  set_cpu_modes();
  const c10::InferenceMode inference;
  std::stringstream file;
  small_model().save(file);
  torch::jit::Module frozen = torch::jit::freeze(torch::jit::load(file));
  const std::vector<c10::IValue> inputs{torch::ones({1, 3, 16, 16})};
  frozen.forward(inputs);
  torch::jit::optimize_for_inference(frozen).forward(inputs);
  map_heap(kHeapWithoutModel);
}

}  // namespace gpulet::executor
