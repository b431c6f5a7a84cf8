#include <algorithm>
#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/repository.h"
#include "json_events.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

// Looks for "models" among the members of the document; what is wrong with the rest, its own reader
// says.
class MemberReader final : public JsonReader {
 public:
  bool scalar(const Scalar& /*value*/) override { return true; }
  bool key(std::string_view name) override {
    found_ = found_ || (depth_ == 1 && name == "models");
    return true;
  }
  bool open(bool /*array*/) override {
    ++depth_;
    return true;
  }
  bool close() override {
    --depth_;
    return true;
  }
  [[nodiscard]] bool found() const { return found_; }

 private:
  std::size_t depth_ = 0;
  bool found_ = false;
};

bool is_models_file(std::string_view text) {
  MemberReader reader;
  static_cast<void>(read_json(text, reader));
  return reader.found();
}

}  // namespace

Status check_load_parameter(std::string_view name) {
  if (name == "config") return {};
  if (name.starts_with("file:")) {
    return invalid("parameter " + in_quotes(name) +
                   " is not supported: a model's file must be on the server, where the models file "
                   "says");
  }
  return invalid("parameter " + in_quotes(name) +
                 " is not known: a load accepts 'config', a model configuration or the text of a "
                 "models file");
}

Result<serve::ModelsChange> loading(const std::string& model, std::string config) {
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::load;
  if (config.empty()) {
    change.name = model;
    return change;
  }
  if (!is_models_file(config)) {
    change.name = model;
    change.configuration = std::move(config);
    return change;
  }
  change.file = "config";
  const auto models = config::parse_models(config, change.file);
  if (!models.ok()) return models.status();
  const bool only_it =
      std::all_of(models.value().begin(), models.value().end(),
                  [&model](const config::ModelConfig& entry) { return entry.name == model; });
  if (!only_it || models.value().empty()) {
    return Status(
        StatusCode::invalid,
        "the parameter config must be a models file with one entry, that of '" + model + "'");
  }
  change.text = http::bytes_of(std::move(config));
  return change;
}

Status load_status(const std::string& model, const Status& status) {
  return status.within("failed to load " + in_quotes(model));
}

serve::ModelsChange unloading(const std::string& model) {
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::unload;
  change.name = model;
  return change;
}

}  // namespace gpulet::net::kserve
