#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpulet/executor/boundary/boundary.h"

namespace gpulet::executor::boundary {
namespace {

// An object of the inner side, destroyed by the inner side's drop_* function.
template <typename Inner>
using Owned = std::unique_ptr<Inner, void (*)(Inner*)>;

// A listener that stores the message in `text`, which must outlive the call.
Listener listener_into(std::string& text) {
  return {.place = &text, .tell = [](void* place, const char* told, std::size_t size) noexcept {
            static_cast<std::string*>(place)->assign(told, size);
          }};
}

// Calls a function of the boundary whose last parameter is a listener; it must not be passed here.
template <typename... Parameters, typename... Arguments>
Status call(StatusCode (*function)(Parameters...), Arguments... arguments) {
  std::string message;
  const StatusCode code = function(arguments..., listener_into(message));
  if (code == StatusCode::ok) return {};
  return {code, std::move(message)};
}

Conversion view(const std::optional<InputConversion>& conversion) {
  if (!conversion) return {};
  return {.type = conversion->type,
          .from_channels_last = conversion->from_channels_last,
          .to_channels_last = conversion->to_channels_last,
          .scale = conversion->scale,
          .mean = conversion->mean,
          .deviation = conversion->deviation};
}

// Views of the specs, which must outlive them.
std::vector<Tensor> views(const std::vector<TensorSpec>& specs) {
  std::vector<Tensor> made;
  made.reserve(specs.size());
  for (const TensorSpec& each : specs) {
    made.push_back({.name = each.name,
                    .type = each.type,
                    .shape = each.shape,
                    .max_bytes = each.max_bytes,
                    .conversion = view(each.conversion),
                    .has_range = each.range.has_value(),
                    .range = each.range.value_or(ValueRange{}),
                    .whole = each.whole});
  }
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
  const Owned<InnerBatch> inner_;
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
    if (Status status = call(boundary_.found_share, inner_.get(), &found); !status.ok())
      return status;
    return found;
  }
  [[nodiscard]] partition::DeviceHealth health() const override {
    return boundary_.health(inner_.get());
  }
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override {
    const std::vector<Tensor> inputs = views(model.inputs);
    const std::vector<Tensor> outputs = views(model.outputs);
    const Model across{.name = model.name,
                       .file = model.file,
                       .inputs = inputs,
                       .outputs = outputs,
                       .max_batch = model.max_batch,
                       .variant = model.variant,
                       .numerics = model.numerics,
                       .planned_batches = model.planned_batches};
    std::uint32_t variant = 0;
    if (Status loaded = call(boundary_.load, inner_.get(), &across, &variant); !loaded.ok())
      return loaded;
    return variant;
  }
  [[nodiscard]] partition::LoadStages load_stages() const override {
    return boundary_.load_stages(inner_.get());
  }
  void serving() override {
    (void)call(boundary_.serving, inner_.get());  // best effort
  }
  [[nodiscard]] std::optional<partition::ProcessCondition> condition() const override {
    partition::ProcessCondition found;
    if (!boundary_.condition(inner_.get(), &found)) return std::nullopt;
    return found;
  }
  [[nodiscard]] double error_of(std::uint32_t variant) const override {
    return boundary_.error_of(inner_.get(), variant);
  }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override {
    std::size_t written = 0;
    if (Status ran = call(boundary_.run, inner_.get(), &batch, &written); !ran.ok()) return ran;
    return written;
  }
  [[nodiscard]] std::string failure_text() const override {
    std::string text;
    boundary_.failure_text(inner_.get(), listener_into(text));
    return text;
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
  const Owned<InnerExecutor> inner_;
};

class OuterDevice final : public SharedDevice {
 public:
  OuterDevice(const Boundary& boundary, InnerDevice* inner)
      : boundary_(boundary), inner_(inner, boundary.drop_device) {}

  [[nodiscard]] Result<std::unique_ptr<Executor>> add_executor(
      Share share, std::span<const std::string> models) override {
    const std::vector<std::string_view> names(models.begin(), models.end());
    InnerExecutor* executor = nullptr;
    if (Status added = call(boundary_.add_executor, inner_.get(), share,
                            std::span<const std::string_view>(names), &executor);
        !added.ok())
      return added;
    return std::unique_ptr<Executor>(std::make_unique<OuterExecutor>(boundary_, executor));
  }

 private:
  const Boundary& boundary_;
  const Owned<InnerDevice> inner_;
};

}  // namespace

Result<const Boundary*> open_boundary(const std::filesystem::path& library, const char* shown) {
  // RTLD_LOCAL: the executor's libraries (protobuf, BLAS) may have other versions than the
  // program's. RTLD_NODELETE: the library stays open until the process ends.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return Status(StatusCode::unavailable, reason != nullptr ? reason : library.string());
  }
  auto* const function = reinterpret_cast<const Boundary* (*)()>(::dlsym(handle, shown));
  if (function == nullptr) {
    return Status(StatusCode::invalid, library.string() + " has no function " + shown +
                                           "; it is not gpulet's executor library");
  }
  const Boundary* const boundary = function();
  if (std::strcmp(boundary->stamp, stamp()) != 0) {
    return Status(StatusCode::invalid,
                  library.string() + " was built for another version of gpulet (boundary " +
                      boundary->stamp + ", this program's is " + stamp() + ")");
  }
  return boundary;
}

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
