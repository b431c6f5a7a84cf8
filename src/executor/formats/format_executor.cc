#include "gpulet/executor/formats/format_executor.h"

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "gpulet/config/model_config.h"

namespace gpulet::executor {
namespace {

// A batch that has ended.
class EndedBatch final : public RunningBatch {
 public:
  explicit EndedBatch(std::size_t written) : written_(written) {}
  [[nodiscard]] Result<std::size_t> finish() override { return written_; }

 private:
  std::size_t written_;
};

class FormatExecutor final : public Executor {
 public:
  FormatExecutor(MakeExecutor torchscript, MakeExecutor onnx, bool on_gpu)
      : torchscript_{.make = std::move(torchscript)}, onnx_{.make = std::move(onnx)} {
    if (on_gpu) torchscript_.executor = torchscript_.make();
  }

  void use_memory(std::span<std::byte> memory) override {
    memory_ = memory;
    if (torchscript_.executor) torchscript_.executor->use_memory(memory);
  }
  [[nodiscard]] Result<partition::FoundShare> found_share() override {
    return torchscript_.executor ? torchscript_.executor->found_share() : Executor::found_share();
  }
  [[nodiscard]] partition::DeviceHealth health() const override {
    return torchscript_.executor ? torchscript_.executor->health() : Executor::health();
  }
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override;
  [[nodiscard]] partition::LoadStages load_stages() const override {
    return loaded_by_ == nullptr ? partition::LoadStages() : loaded_by_->load_stages();
  }
  void serving() override {
    for (const Part* const part : {&torchscript_, &onnx_}) {
      if (part->executor) part->executor->serving();
    }
  }
  [[nodiscard]] std::optional<partition::ProcessCondition> condition() const override {
    return torchscript_.executor ? torchscript_.executor->condition() : std::nullopt;
  }
  [[nodiscard]] double error_of(std::uint32_t variant) const override {
    return torchscript_.executor ? torchscript_.executor->error_of(variant) : 0;
  }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override {
    const auto found = models_.find(batch.model);
    if (found == models_.end()) return not_loaded(batch.model);
    last_ = found->second;
    return last_->run(batch);
  }
  [[nodiscard]] std::string failure_text() const override {
    return last_ == nullptr ? std::string() : last_->failure_text();
  }
  [[nodiscard]] std::size_t depth() const override {
    return torchscript_.executor ? torchscript_.executor->depth() : 1;
  }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  struct Part {
    MakeExecutor make;
    std::unique_ptr<Executor> executor{};  // null: not needed so far
  };
  [[nodiscard]] Status make(Part& part) const;

  Part torchscript_;
  Part onnx_;
  std::span<std::byte> memory_;
  std::map<std::string, Executor*, std::less<>> models_;
  Executor* last_ = nullptr;       // of the last batch
  Executor* loaded_by_ = nullptr;  // of the last load()
};

Status FormatExecutor::make(Part& part) const {
  if (part.executor) return {};
  try {
    part.executor = part.make();
  } catch (const std::exception& error) {
    return {StatusCode::internal, error.what()};
  }
  part.executor->use_memory(memory_);
  (void)part.executor->found_share();  // of the CPU, which enforces none itself
  return {};
}

Result<std::uint32_t> FormatExecutor::load(const ModelToLoad& model) {
  const std::string where = "model '" + model.name + "': " + model.file;
  const auto format = config::format_of(model.file);
  if (!format.ok()) {
    return Status(StatusCode::not_found, format.status().message() + "; export or fetch it first")
        .within(where);
  }
  Part& part = format.value() == config::FileFormat::onnx ? onnx_ : torchscript_;
  if (Status made = make(part); !made.ok()) return made.within(where);
  loaded_by_ = part.executor.get();
  Result<std::uint32_t> variant = part.executor->load(model);
  if (variant.ok()) models_.insert_or_assign(model.name, part.executor.get());
  return variant;
}

Result<std::unique_ptr<RunningBatch>> FormatExecutor::begin(const BatchToRun& batch) {
  const auto found = models_.find(batch.model);
  if (found == models_.end()) return not_loaded(batch.model);
  last_ = found->second;
  if (last_->depth() > 1) return last_->begin(batch);
  GPULET_TRY(const std::size_t written, last_->run(batch));
  return std::unique_ptr<RunningBatch>(std::make_unique<EndedBatch>(written));
}

}  // namespace

std::unique_ptr<Executor> make_format_executor(MakeExecutor torchscript, MakeExecutor onnx,
                                               bool on_gpu) {
  return std::make_unique<FormatExecutor>(std::move(torchscript), std::move(onnx), on_gpu);
}

}  // namespace gpulet::executor
