#include "executor/torch/conversions.h"

#include <cstdint>
#include <span>
#include <utility>

#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

constexpr std::int64_t kImageRank = 3;

// One number for each channel, in a shape that spreads over an image.
at::Tensor spread(const std::vector<float>& numbers, bool channels_last,
                  const c10::Device& device) {
  at::Tensor tensor = at::tensor(numbers, at::kFloat);
  if (numbers.size() > 1 && !channels_last) tensor = tensor.view({-1, 1, 1});
  return tensor.to(device);
}

}  // namespace

DeviceConversion::DeviceConversion(const TensorSpec& spec, const c10::Device& device)
    : type_(scalar_type(spec.conversion->type)) {
  const InputConversion& conversion = *spec.conversion;
  std::vector<float> factors;
  std::vector<float> offsets;
  for (const ChannelConversion& channel : channels_of(conversion)) {
    factors.push_back(static_cast<float>(channel.factor));
    offsets.push_back(static_cast<float>(channel.offset));
  }
  factor_ = spread(factors, conversion.to_channels_last, device);
  offset_ = spread(offsets, conversion.to_channels_last, device);
  if (conversion.from_channels_last == conversion.to_channels_last) return;
  order_ = conversion.from_channels_last ? std::vector<std::int64_t>{0, kImageRank, 1, 2}
                                         : std::vector<std::int64_t>{0, 2, kImageRank, 1};
}

at::Tensor DeviceConversion::operator()(const at::Tensor& batch) const {
  // Bytes are put into order, because the numbers are four times as many.
  const at::Tensor ordered = order_.empty() ? batch : batch.permute(order_).contiguous();
  return at::addcmul(offset_, ordered.to(at::kFloat), factor_).to(type_).contiguous();
}

Result<InputConversions> InputConversions::of(const std::vector<TensorSpec>& inputs,
                                              const c10::Device& device) {
  GPULET_TRY(auto converters, converters_of(inputs));
  InputConversions made;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    made.on_cpu_.emplace_back();
    made.on_device_.emplace_back();
    if (!converters[i]) continue;
    if (device.is_cpu()) {
      made.on_cpu_[i].emplace(OnCpu{std::move(*converters[i]), model_input(inputs[i])});
    } else {
      made.on_device_[i].emplace(inputs[i], device);
    }
  }
  return made;
}

void InputConversions::apply(std::vector<c10::IValue>& inputs) const {
  for (std::size_t i = 0; i < on_cpu_.size(); ++i) {
    if (on_device_[i]) inputs[i] = (*on_device_[i])(inputs[i].toTensor());
    if (!on_cpu_[i]) continue;
    const auto& [converter, taken] = *on_cpu_[i];
    const at::Tensor given = inputs[i].toTensor().contiguous();
    std::vector<std::int64_t> shape{given.size(0)};
    shape.insert(shape.end(), taken.shape.begin(), taken.shape.end());
    at::Tensor made = at::empty(shape, at::TensorOptions(scalar_type(taken.type)));
    converter.convert({static_cast<const std::byte*>(given.data_ptr()), given.nbytes()},
                      {static_cast<std::byte*>(made.data_ptr()), made.nbytes()});
    inputs[i] = std::move(made);
  }
}

}  // namespace gpulet::executor
