#include "gpulet/config/check_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include "config/reading.h"
#include "gpulet/base/bytes.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {
namespace {

struct Kind {
  std::string_view name;
  std::vector<std::string_view> keys;        // at the top level
  std::vector<std::string_view> model_keys;  // of the elements of a list "models"
};

// Among equal scores the first kind wins.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"demand", {"models", "applications"}, {"name", "rate", "slo_ms", "max_batch"}},
      {"workload", {"models"}, {"name", "rate", "slo_ms", "arrivals", "concurrency", "input"}},
      {"models",
       {"models", "applications"},
       {"name", "rate", "slo_ms", "max_batch", "file", "inputs", "outputs", "memory_mb", "pad"}},
      {"cluster", {"nodes"}, {}},
      {"frontend",
       {"listen", "backend_listen", "models", "profiles", "policy", "margin", "period_s",
        "drain_timeout_s", "drain_grace_s", "limits"},
       {}},
      {"backend", {"node", "frontend", "model_store", "profiles", "proxy", "devices"}, {}},
      {"control",
       {"gpu", "cores", "set_point", "queued_weight", "surplus", "gpu_cores", "least_cores", "pole",
        "period_s", "window_s", "overhead_s", "gains", "steps_period_s", "percentile", "patience_s",
        "seed", "spill"},
       {}},
  };
  return all;
}

// The number of the document's keys that this kind knows. A typo in one key does not change the
// kind, so the kind's own reader can report it.
std::size_t score_of(const JsonCursor& root, const Kind& kind) {
  std::size_t score = 0;
  for (const std::string_view key : kind.keys) {
    const auto value = root.find(key);
    // "models" is a path in a frontend's file and a list in the others.
    if (value &&
        (key != "models" || (value->type() == JsonCursor::Type::array) == !kind.model_keys.empty()))
      ++score;
  }
  const auto models = root.find("models");
  if (!models || models->type() != JsonCursor::Type::array) return score;
  for (const JsonCursor& element : models->elements("a list of models")) {
    for (const std::string_view key : kind.model_keys) score += element.find(key) ? 1 : 0;
  }
  return score;
}

Result<std::string_view> recognise(const JsonCursor& root) {
  const Kind* best = nullptr;
  std::size_t best_score = 0;
  for (const Kind& kind : kinds()) {
    const std::size_t score = score_of(root, kind);
    if (score > best_score) {
      best = &kind;
      best_score = score;
    }
  }
  if (best != nullptr) return best->name;
  std::vector<std::string_view> names;
  for (const Kind& kind : kinds()) names.push_back(kind.name);
  root.fail("the keys match no known kind of file", "write one of these kinds: " + joined(names));
  return root.status();
}

// Collects the errors of a file and of the files that it names.
class Check {
 public:
  Check(std::string_view kind, JsonCursor root, std::filesystem::path file)
      : root_(std::move(root)), file_(std::move(file)) {
    checked_.kind = kind;
  }

  CheckedFile run() {
    if (checked_.kind == "demand") {
      static_cast<void>(load_file(file_, parse_demand, &checked_.errors));
    } else if (checked_.kind == "cluster") {
      static_cast<void>(load_file(file_, parse_cluster, &checked_.errors));
    } else if (checked_.kind == "control") {
      static_cast<void>(load_file(file_, parse_control, &checked_.errors));
    } else if (checked_.kind == "workload") {
      check_workload();
    } else if (checked_.kind == "models") {
      check_models(file_);
    } else if (checked_.kind == "frontend") {
      check_frontend();
    } else {
      check_backend();
    }
    return std::move(checked_);
  }

 private:
  // Records an error at that place unless `path` exists. Returns whether it exists.
  bool must_exist(const std::filesystem::path& named_in, const std::string& pointer,
                  const std::filesystem::path& path, const std::string& fix) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return true;
    checked_.errors.emplace_back(StatusCode::not_found,
                                 fmt::format("{}: {}: {} does not exist; {}", named_in.string(),
                                             pointer, path.string(), fix));
    return false;
  }

  void check_labels(const std::filesystem::path& file, std::size_t index,
                    const ModelConfig& model) {
    for (const auto& [output, path] : model.labels) {
      const Status labels = load_labels(path, output_named(model, output)).status();
      if (labels.ok()) continue;
      checked_.errors.push_back(
          labels.within(fmt::format("{}: /models/{}/labels/{}", file.string(), index, output)));
    }
  }

  [[nodiscard]] bool names_a_path(std::string_view key) const {
    const auto named = root_.find(key);
    return named && named->type() == JsonCursor::Type::text && !named->text("a path").empty();
  }

  void check_models(const std::filesystem::path& file) {
    std::vector<Status> errors;
    auto serving = load_file(file, parse_serving, &errors);
    checked_.errors.insert(checked_.errors.end(), errors.begin(), errors.end());
    if (!errors.empty()) return;
    for (std::size_t i = 0; i < serving.value().models.size(); ++i) {
      const ModelConfig& model = serving.value().models[i];
      // What a store has is not looked up: it may not be reachable from here.
      if (!model.remote) {
        must_exist(file, fmt::format("/models/{}/file", i), model.file,
                   "export it to that file, or correct the path");
      }
      check_labels(file, i, model);
    }
    checked_.serving = std::move(serving).value();
    checked_.models_file = file;
  }

  void check_workload() {
    const auto models = load_file(file_, parse_workload, &checked_.errors);
    if (!checked_.errors.empty()) return;
    for (std::size_t i = 0; i < models.value().size(); ++i) {
      const std::optional<WorkloadInput>& input = models.value()[i].input;
      if (!input) continue;
      const std::string place = fmt::format("/models/{}/input/", i);
      must_exist(file_, place + "file", input->file, "correct the path, or remove the input");
      if (input->labels) {
        must_exist(file_, place + "labels", *input->labels,
                   "correct the path, or take the labels out");
      }
    }
  }

  void check_tls(const std::string& pointer, const std::optional<TlsFiles>& tls) {
    if (!tls) return;
    constexpr const char* kFix = "correct the path, or make one (docs/security.md, \"TLS\")";
    must_exist(file_, pointer + "/certificate", tls->certificate, kFix);
    must_exist(file_, pointer + "/key", tls->key, kFix);
    if (!tls->authority.empty()) must_exist(file_, pointer + "/authority", tls->authority, kFix);
  }

  void check_tokens(const TokenFiles& tokens) {
    constexpr const char* kFix = "`openssl rand -hex 32` makes a token; or correct the path";
    if (!tokens.admin.empty()) must_exist(file_, "/tokens/admin", tokens.admin, kFix);
    if (!tokens.inference.empty()) must_exist(file_, "/tokens/inference", tokens.inference, kFix);
    if (!tokens.observe.empty()) must_exist(file_, "/tokens/observe", tokens.observe, kFix);
  }

  void check_frontend() {
    auto config = load_file(file_, parse_frontend, &checked_.errors);
    if (!config.ok()) return;
    // The files that it names are checked even where other keys have errors.
    if (!names_a_path("models")) config.value().models.clear();
    if (!names_a_path("profiles")) config.value().profiles.clear();
    const std::filesystem::path& models = config.value().models;
    if (!models.empty() && must_exist(file_, "/models", models, "correct the path"))
      check_models(models);
    if (!config.value().profiles.empty())
      must_exist(file_, "/profiles", config.value().profiles, kProfilesFix);
    if (config.value().model_root) {
      must_exist(file_, "/model_root", *config.value().model_root,
                 "make the folder, correct the path, or take it out");
    }
    if (const auto& authority = config.value().remote_stores.authority; !authority.empty())
      must_exist(file_, "/remote_stores/authority", authority, "correct the path");
    check_tls("/tls", config.value().tls);
    check_tls("/backend_tls", config.value().backend_tls);
    check_tokens(config.value().tokens);
    checked_.frontend = std::move(config).value();
  }

  void check_backend() {
    auto config = load_file(file_, parse_backend, &checked_.errors);
    if (!checked_.errors.empty()) return;
    if (!config.value().profiles.empty())
      must_exist(file_, "/profiles", config.value().profiles, kProfilesFix);
    if (!config.value().proxy.empty()) {
      must_exist(file_, "/proxy", config.value().proxy, "build gpulet-proxy or correct the path");
    }
    check_tls("/tls", config.value().tls);
    checked_.backend = std::move(config).value();
  }

  static constexpr const char* kProfilesFix =
      "measure one with `gpulet profile run` or correct the path";

  const JsonCursor root_;
  const std::filesystem::path file_;
  CheckedFile checked_;
};

// Bytes of that many rows; saturates.
std::uint64_t bytes_of(const std::vector<TensorSpec>& inputs, std::uint32_t rows) {
  const Result<std::size_t> row = byte_size(inputs);
  std::uint64_t bytes = 0;
  if (!row.ok() || __builtin_mul_overflow(std::uint64_t{row.value()}, std::uint64_t{rows}, &bytes))
    return std::numeric_limits<std::uint64_t>::max();
  return bytes;
}

}  // namespace

Result<CheckedFile> check_file(const std::filesystem::path& file) {
  GPULET_TRY(const JsonCursor root, JsonCursor::read_file(file));
  GPULET_TRY(const std::string_view kind, recognise(root));
  return Check(kind, root, file).run();
}

std::vector<std::string> full_batches_too_long(const FrontendConfig& config,
                                               const ServingConfig& serving) {
  const std::string_view key = config.max_payload_bytes ? "max_payload_bytes" : "max_buffered_mb";
  const std::uint64_t most = config.max_payload_bytes ? *config.max_payload_bytes
                                                      : config.max_buffered_mb * kBytesPerMegabyte;
  std::vector<std::string> warnings;
  const auto check = [&](const std::string& what, const std::vector<TensorSpec>& inputs,
                         std::uint32_t rows) {
    const std::uint64_t bytes = bytes_of(inputs, rows);
    if (bytes <= most) return;
    warnings.push_back(
        fmt::format("{0}: a full batch of {1} has {2} bytes, but {3} allows {4}; raise "
                    "{3}, or lower the model's max_batch",
                    what, rows, bytes, key, most));
  };
  for (const ModelConfig& model : with_buckets(serving.models))
    check("model " + in_quotes(model.name), model.inputs, model.max_batch);
  for (const ApplicationConfig& application : serving.applications)
    check("application " + in_quotes(application.name), application.inputs, 1);
  return warnings;
}

}  // namespace gpulet::config
