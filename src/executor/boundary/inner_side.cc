#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpulet/executor/boundary/boundary.h"

namespace gpulet::executor::boundary {

struct InnerExecutor {
  std::unique_ptr<Executor> executor;
};
struct InnerBatch {
  std::unique_ptr<RunningBatch> batch;
};
struct InnerDevice {
  std::unique_ptr<SharedDevice> device;
};

namespace {

StatusCode send(Listener listener, StatusCode code, std::string_view message) {
  listener.tell(listener.place, message.data(), message.size());
  return code;
}

template <typename Work>
StatusCode guarded(Listener listener, const Work& work) noexcept {
  try {
    const Status status = work();
    return status.ok() ? StatusCode::ok : send(listener, status.code(), status.message());
  } catch (const std::invalid_argument& error) {
    return send(listener, StatusCode::invalid, error.what());
  } catch (const std::exception& error) {
    return send(listener, StatusCode::internal, error.what());
  } catch (...) {
    return send(listener, StatusCode::internal, "an exception that is not a std::exception");
  }
}

template <typename Value>
Status store(Result<Value> result, Value* place) {
  if (!result.ok()) return result.status();
  *place = std::move(result).value();
  return {};
}

template <typename Inner, typename Value>
Status store_owned(Result<std::unique_ptr<Value>> result, Inner** place) {
  if (!result.ok()) return result.status();
  *place = std::make_unique<Inner>(Inner{std::move(result).value()}).release();
  return {};
}

std::optional<InputConversion> to_conversion(const Conversion& conversion) {
  if (conversion.mean.empty()) return std::nullopt;
  return InputConversion{.type = conversion.type,
                         .from_channels_last = conversion.from_channels_last,
                         .to_channels_last = conversion.to_channels_last,
                         .scale = conversion.scale,
                         .mean = {conversion.mean.begin(), conversion.mean.end()},
                         .deviation = {conversion.deviation.begin(), conversion.deviation.end()}};
}

std::vector<TensorSpec> to_specs(std::span<const Tensor> tensors) {
  std::vector<TensorSpec> made;
  made.reserve(tensors.size());
  for (const Tensor& each : tensors) {
    made.push_back({.name = std::string(each.name),
                    .type = each.type,
                    .shape = {each.shape.begin(), each.shape.end()},
                    .max_bytes = each.max_bytes,
                    .conversion = to_conversion(each.conversion),
                    .range = each.has_range ? std::optional(each.range) : std::nullopt,
                    .whole = each.whole});
  }
  return made;
}

ModelToLoad to_load(const Model& model) {
  return {.name = std::string(model.name),
          .file = std::string(model.file),
          .inputs = to_specs(model.inputs),
          .outputs = to_specs(model.outputs),
          .max_batch = model.max_batch,
          .variant = model.variant,
          .numerics = model.numerics,
          .planned_batches = {model.planned_batches.begin(), model.planned_batches.end()}};
}

StatusCode prepare_inside(const Makers* makers, Listener listener) noexcept {
  return guarded(listener, [=] {
    makers->prepare();
    return Status();
  });
}

StatusCode make_executor_inside(const Makers* makers, std::string_view device, InnerExecutor** made,
                                Listener listener) noexcept {
  return guarded(listener, [=] {
    return store_owned<InnerExecutor, Executor>(makers->make_executor(std::string(device)), made);
  });
}

StatusCode make_shared_device_inside(const Makers* makers, std::string_view device,
                                     InnerDevice** made, Listener listener) noexcept {
  return guarded(
      listener, [=] { return store_owned(makers->make_shared_device(std::string(device)), made); });
}

StatusCode add_executor(InnerDevice* device, Share share, std::span<const std::string_view> models,
                        InnerExecutor** made, Listener listener) noexcept {
  return guarded(listener, [=] {
    const std::vector<std::string> names(models.begin(), models.end());
    return store_owned(device->device->add_executor(share, names), made);
  });
}

StatusCode use_memory(InnerExecutor* executor, std::span<std::byte> memory,
                      Listener listener) noexcept {
  return guarded(listener, [=] {
    executor->executor->use_memory(memory);
    return Status();
  });
}

StatusCode found_share(InnerExecutor* executor, partition::FoundShare* found,
                       Listener listener) noexcept {
  return guarded(listener, [=] { return store(executor->executor->found_share(), found); });
}

StatusCode load(InnerExecutor* executor, const Model* model, std::uint32_t* variant,
                Listener listener) noexcept {
  return guarded(listener,
                 [=] { return store(executor->executor->load(to_load(*model)), variant); });
}

StatusCode serving(InnerExecutor* executor, Listener listener) noexcept {
  return guarded(listener, [=] {
    executor->executor->serving();
    return Status();
  });
}

bool condition(const InnerExecutor* executor, partition::ProcessCondition* condition) noexcept {
  const auto found = executor->executor->condition();
  if (found) *condition = *found;
  return found.has_value();
}

StatusCode run(InnerExecutor* executor, const BatchToRun* batch, std::size_t* written,
               Listener listener) noexcept {
  return guarded(listener, [=] { return store(executor->executor->run(*batch), written); });
}

void failure_text(const InnerExecutor* executor, Listener listener) noexcept {
  (void)guarded(listener, [=] {
    const std::string text = executor->executor->failure_text();
    listener.tell(listener.place, text.data(), text.size());
    return Status();
  });
}

StatusCode begin(InnerExecutor* executor, const BatchToRun* batch, InnerBatch** begun,
                 Listener listener) noexcept {
  return guarded(listener, [=] { return store_owned(executor->executor->begin(*batch), begun); });
}

StatusCode finish(InnerBatch* batch, std::size_t* written, Listener listener) noexcept {
  return guarded(listener, [=] { return store(batch->batch->finish(), written); });
}

template <typename Inner>
void drop(Inner* inner) noexcept {
  const std::unique_ptr<Inner> ends(inner);
}

}  // namespace

const char* stamp() { return GPULET_BOUNDARY_STAMP; }

Boundary boundary_to(const Makers& makers) {
  return {
      .stamp = stamp(),
      .makers = &makers,
      .abilities = makers.abilities,
      .prepare = prepare_inside,
      .make_executor = make_executor_inside,
      .make_shared_device = make_shared_device_inside,
      .add_executor = add_executor,
      .use_memory = use_memory,
      .found_share = found_share,
      .health = [](const InnerExecutor* inner) noexcept { return inner->executor->health(); },
      .load = load,
      .load_stages =
          [](const InnerExecutor* inner) noexcept { return inner->executor->load_stages(); },
      .serving = serving,
      .condition = condition,
      .error_of = [](const InnerExecutor* inner,
                     std::uint32_t variant) noexcept { return inner->executor->error_of(variant); },
      .run = run,
      .failure_text = failure_text,
      .depth = [](const InnerExecutor* inner) noexcept { return inner->executor->depth(); },
      .begin = begin,
      .finish = finish,
      .drop_device = drop<InnerDevice>,
      .drop_executor = drop<InnerExecutor>,
      .drop_batch = drop<InnerBatch>};
}

}  // namespace gpulet::executor::boundary
