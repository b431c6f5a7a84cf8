#include <stdexcept>
#include <utility>
#include <vector>

#include "gpulet/executor/boundary/boundary.h"

namespace gpulet::executor::boundary {
namespace {

// What the other side holds for this one; it alone can drop it.
template <typename Inner>
using Held = std::unique_ptr<Inner, void (*)(Inner*)>;

// A call of a function whose last parameter is a listener.
template <typename... Parameters, typename... Arguments>
Status call(StatusCode (*function)(Parameters...), Arguments... arguments) {
  std::string message;
  const Listener listener{.place = &message,
                          .tell = [](void* place, const char* said, std::size_t size) noexcept {
                            static_cast<std::string*>(place)->assign(said, size);
                          }};
  const StatusCode code = function(arguments..., listener);
  if (code == StatusCode::ok) return {};
  return {code, std::move(message)};
}

std::vector<Tensor> views(const std::vector<TensorSpec>& specs) {
  std::vector<Tensor> made;
  made.reserve(specs.size());
  for (const TensorSpec& each : specs)
    made.push_back({.name = each.name, .type = each.type, .shape = each.shape});
  return made;
}

class OuterBatch final : public RunningBatch {
 public:
  OuterBatch(const Boundary& boundary, InnerBatch* inner)
      : boundary_(boundary), inner_(inner, boundary.drop_batch) {}

  [[nodiscard]] Result<std::size_t> finish() override {
    std::size_t written = 0;
    if (Status ended = call(boundary_.finish, inner_.get(), &written); !ended.ok()) return ended;
    return written;
  }

 private:
  const Boundary& boundary_;
  const Held<InnerBatch> inner_;
};

class OuterExecutor final : public Executor {
 public:
  OuterExecutor(const Boundary& boundary, InnerExecutor* inner)
      : boundary_(boundary), inner_(inner, boundary.drop_executor) {}

  void use_memory(std::span<std::byte> memory) override {
    (void)call(boundary_.use_memory, inner_.get(), memory);  // best effort
  }
  [[nodiscard]] Result<partition::FoundShare> found_share() override {
    partition::FoundShare found;
    if (Status asked = call(boundary_.found_share, inner_.get(), &found); !asked.ok()) return asked;
    return found;
  }
  [[nodiscard]] partition::DeviceHealth health() const override {
    return boundary_.health(inner_.get());
  }
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override {
    const std::vector<Tensor> inputs = views(model.inputs);
    const std::vector<Tensor> outputs = views(model.outputs);
    const Model across{.name = model.name,
                       .file = model.file.native(),
                       .inputs = inputs,
                       .outputs = outputs,
                       .max_batch = model.max_batch,
                       .form = model.form,
                       .numerics = model.numerics};
    std::uint32_t form = 0;
    if (Status loaded = call(boundary_.load, inner_.get(), &across, &form); !loaded.ok())
      return loaded;
    return form;
  }
  [[nodiscard]] double error_of(std::uint32_t form) const override {
    return boundary_.error_of(inner_.get(), form);
  }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override {
    std::size_t written = 0;
    if (Status ran = call(boundary_.run, inner_.get(), &batch, &written); !ran.ok()) return ran;
    return written;
  }
  [[nodiscard]] std::size_t depth() const override { return boundary_.depth(inner_.get()); }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override {
    InnerBatch* begun = nullptr;
    if (Status status = call(boundary_.begin, inner_.get(), &batch, &begun); !status.ok())
      return status;
    return std::unique_ptr<RunningBatch>(std::make_unique<OuterBatch>(boundary_, begun));
  }

 private:
  const Boundary& boundary_;
  const Held<InnerExecutor> inner_;
};

class OuterDevice final : public SharedDevice {
 public:
  OuterDevice(const Boundary& boundary, InnerDevice* inner)
      : boundary_(boundary), inner_(inner, boundary.drop_device) {}

  [[nodiscard]] Result<std::unique_ptr<Executor>> add_lane(Share share) override {
    InnerExecutor* lane = nullptr;
    if (Status added = call(boundary_.add_lane, inner_.get(), share, &lane); !added.ok())
      return added;
    return std::unique_ptr<Executor>(std::make_unique<OuterExecutor>(boundary_, lane));
  }

 private:
  const Boundary& boundary_;
  const Held<InnerDevice> inner_;
};

}  // namespace

void prepare(const Boundary& boundary) {
  const Status prepared = call(boundary.prepare, boundary.makers);
  if (!prepared.ok()) throw std::runtime_error(prepared.message());
}

std::unique_ptr<Executor> make_executor(const Boundary& boundary, std::string_view device) {
  InnerExecutor* made = nullptr;
  const Status status = call(boundary.make_executor, boundary.makers, device, &made);
  if (status.code() == StatusCode::invalid) throw std::invalid_argument(status.message());
  if (!status.ok()) throw std::runtime_error(status.message());
  return std::make_unique<OuterExecutor>(boundary, made);
}

Result<std::unique_ptr<SharedDevice>> make_shared_device(const Boundary& boundary,
                                                         std::string_view device) {
  InnerDevice* made = nullptr;
  if (Status status = call(boundary.make_shared_device, boundary.makers, device, &made);
      !status.ok())
    return status;
  return std::unique_ptr<SharedDevice>(std::make_unique<OuterDevice>(boundary, made));
}

}  // namespace gpulet::executor::boundary
