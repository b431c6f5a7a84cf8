#include <utility>

#include "gpu/cuda_calls.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {

namespace abi = cuda_abi;

class RegisteredMemory::Registration {
 public:
  Registration(std::shared_ptr<const CudaCalls> calls,
               std::shared_ptr<const PrimaryContext> primary)
      : calls_(std::move(calls)), primary_(std::move(primary)) {}
  ~Registration() {
    if (begin_ != nullptr)
      (void)under_context([this] { return calls_->memory_unregister(begin_); });
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  [[nodiscard]] Status take(std::span<std::byte> memory) {
    const abi::Return code = under_context([this, memory] {
      return calls_->memory_register(memory.data(), memory.size(), abi::kRegisterPortable);
    });
    if (code != abi::kSuccess) {
      return calls_->failure(code, "the " + std::to_string(memory.size()) +
                                       " bytes of shared memory cannot be registered");
    }
    begin_ = memory.data();
    return {};
  }

 private:
  template <typename Call>
  abi::Return under_context(const Call& call) const {
    abi::Context popped = nullptr;
    if (const abi::Return code = calls_->context_push_current(primary_->context());
        code != abi::kSuccess)
      return code;
    const abi::Return code = call();
    (void)calls_->context_pop_current(&popped);
    return code;
  }

  std::shared_ptr<const CudaCalls> calls_;
  std::shared_ptr<const PrimaryContext> primary_;
  void* begin_ = nullptr;
};

RegisteredMemory::RegisteredMemory(std::unique_ptr<Registration> registration)
    : registration_(std::move(registration)) {}
RegisteredMemory::RegisteredMemory(RegisteredMemory&&) noexcept = default;
RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&&) noexcept = default;
RegisteredMemory::~RegisteredMemory() = default;

Result<RegisteredMemory> CudaDriver::register_memory(std::uint32_t gpu,
                                                     std::span<std::byte> memory) const {
  const Result<abi::Device> device = calls_->device(gpu);
  if (!device.ok()) return device.status();
  auto primary = PrimaryContext::retain(calls_, device.value());
  if (!primary.ok()) return primary.status();
  auto registration =
      std::make_unique<RegisteredMemory::Registration>(calls_, std::move(primary).value());
  if (Status taken = registration->take(memory); !taken.ok()) return taken;
  return RegisteredMemory(std::move(registration));
}

}  // namespace gpulet::gpu
