// gpulet-proxy-arithmetic: a simulated proxy. Models with two INT32 inputs and two outputs of the
// same shape return the element-wise sum and difference; others behave as in
// gpulet-proxy-simulated.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gpulet/executor/simulated_executor.h"
#include "proxy/proxy.h"

namespace {

using namespace gpulet;

bool computes(const ModelToLoad& model) {
  if (model.inputs.size() != 2 || model.outputs.size() != 2) return false;
  for (const auto* tensors : {&model.inputs, &model.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      if (tensor.type != DataType::int32 || tensor.shape != model.inputs[0].shape) return false;
    }
  }
  return true;
}

class ArithmeticExecutor final : public executor::Executor {
 public:
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    if (computes(model)) computing_.insert(model.name);
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    Result<std::size_t> written = simulated_.run(batch);  // checks the sizes and waits
    if (written.ok() && computing_.contains(batch.model)) compute(batch);
    return written;
  }

 private:
  // In a batch, all rows of the first tensor come before those of the second.
  static void compute(const executor::BatchToRun& batch) {
    const std::size_t half = batch.input.size() / 2;
    for (std::size_t at = 0; at < half; at += sizeof(std::int32_t)) {
      const std::int32_t first = read(batch.input, at);
      const std::int32_t second = read(batch.input, half + at);
      write(batch.output, at, first + second);
      write(batch.output, half + at, first - second);
    }
  }
  static std::int32_t read(std::span<const std::byte> from, std::size_t at) {
    std::int32_t value = 0;
    std::memcpy(&value, from.data() + at, sizeof(value));
    return value;
  }
  static void write(std::span<std::byte> into, std::size_t at, std::int32_t value) {
    std::memcpy(into.data() + at, &value, sizeof(value));
  }

  executor::SimulatedExecutor simulated_;
  std::set<std::string, std::less<>> computing_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<ArithmeticExecutor>(); };
  return proxy::run(arguments.subspan(1), program);
}
