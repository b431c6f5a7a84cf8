#include <algorithm>
#include <array>
#include <system_error>

#include "config/loading.h"
#include "config/wording.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/control_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/workload_config.h"

namespace gpulet::config {
namespace {

struct Kind {
  std::string_view name;
  std::vector<std::string_view> keys;        // of the top level
  std::vector<std::string_view> model_keys;  // of the elements of "models", where that is a list
};

// In the order that settles ties.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"demand", {"models"}, {"name", "rate", "slo_ms", "max_batch"}},
      {"workload", {"models"}, {"name", "rate", "slo_ms", "arrivals", "concurrency", "input"}},
      {"models",
       {"models", "applications"},
       {"name", "rate", "slo_ms", "max_batch", "file", "inputs", "outputs", "memory_mb"}},
      {"cluster", {"nodes"}, {}},
      {"frontend",
       {"listen", "backend_listen", "models", "profiles", "policy", "margin", "period_s",
        "drain_timeout_s", "limits"},
       {}},
      {"backend", {"node", "frontend", "model_store", "profiles", "proxy", "devices"}, {}},
      {"control",
       {"gpu", "cores", "set_point", "queued_weight", "surplus", "gpu_cores", "least_cores", "pole",
        "period_s", "steps_period_s", "percentile", "patience_s", "seed", "spill"},
       {}},
  };
  return all;
}

// How many of the document's keys are of that kind. A slip of the pen in one key must not change
// the kind, so that the kind's own loader can name the mend.
std::size_t resemblance(const JsonCursor& root, const Kind& kind) {
  std::size_t score = 0;
  for (const std::string_view key : kind.keys) {
    const auto value = root.find(key);
    // "models" is a path in a frontend's file and a list in the others.
    if (value && (key != "models" || value->is_array() == !kind.model_keys.empty())) ++score;
  }
  const auto models = root.find("models");
  if (!models || !models->is_array()) return score;
  for (const JsonCursor& element : models->elements("a list of models")) {
    for (const std::string_view key : kind.model_keys) score += element.find(key) ? 1 : 0;
  }
  return score;
}

Result<std::string_view> recognise(const JsonCursor& root) {
  const Kind* best = nullptr;
  std::size_t best_score = 0;
  for (const Kind& kind : kinds()) {
    const std::size_t score = resemblance(root, kind);
    if (score > best_score) {
      best = &kind;
      best_score = score;
    }
  }
  if (best != nullptr) return best->name;
  std::vector<std::string_view> names;
  for (const Kind& kind : kinds()) names.push_back(kind.name);
  root.fail("the keys are of no kind of file known here",
            "write one of these kinds: " + joined(names));
  return root.status();
}

// A file or folder that a configuration names.
Status must_exist(const std::filesystem::path& named_in, const std::string& pointer,
                  const std::filesystem::path& path, const std::string& mend) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return {};
  return {StatusCode::not_found,
          named_in.string() + ": " + pointer + ": " + path.string() + " does not exist; " + mend};
}

Status check_models(const std::filesystem::path& file) {
  const auto models = load_models(file);
  if (!models.ok()) return models.status();
  for (std::size_t i = 0; i < models.value().size(); ++i) {
    Status status = must_exist(
        file, "/models/" + std::to_string(i) + "/file", models.value()[i].file,
        "export it (scripts/export_models.py makes the example models) or correct the path");
    if (!status.ok()) return status;
  }
  return {};
}

Status check_workload(const std::filesystem::path& file) {
  const auto models = load_workload(file);
  if (!models.ok()) return models.status();
  for (std::size_t i = 0; i < models.value().size(); ++i) {
    const std::optional<WorkloadInput>& input = models.value()[i].input;
    if (!input) continue;
    const std::string place = "/models/" + std::to_string(i) + "/input/";
    Status status =
        must_exist(file, place + "file", input->file, "correct the path, or take the input out");
    if (status.ok() && input->labels) {
      status = must_exist(file, place + "labels", *input->labels,
                          "correct the path, or take the labels out");
    }
    if (!status.ok()) return status;
  }
  return {};
}

Status check_tls(const std::filesystem::path& file, const std::string& pointer,
                 const std::optional<TlsFiles>& tls) {
  if (!tls) return {};
  constexpr const char* kMend = "scripts/make-certificates makes one, or correct the path";
  Status status = must_exist(file, pointer + "/certificate", tls->certificate, kMend);
  if (status.ok()) status = must_exist(file, pointer + "/key", tls->key, kMend);
  if (status.ok() && !tls->authority.empty())
    status = must_exist(file, pointer + "/authority", tls->authority, kMend);
  return status;
}

Status check_tokens(const std::filesystem::path& file, const TokenFiles& tokens) {
  constexpr const char* kMend = "`openssl rand -hex 32` makes a token; or correct the path";
  Status status;
  if (!tokens.admin.empty()) status = must_exist(file, "/tokens/admin", tokens.admin, kMend);
  if (status.ok() && !tokens.inference.empty())
    status = must_exist(file, "/tokens/inference", tokens.inference, kMend);
  if (status.ok() && !tokens.observe.empty())
    status = must_exist(file, "/tokens/observe", tokens.observe, kMend);
  return status;
}

constexpr const char* kProfilesMend = "measure one with `gpulet profile run` or correct the path";

Status check_frontend(const std::filesystem::path& file) {
  const auto config = load_frontend(file);
  if (!config.ok()) return config.status();
  Status status = must_exist(file, "/models", config.value().models, "correct the path");
  if (status.ok()) status = check_models(config.value().models);
  if (status.ok()) status = must_exist(file, "/profiles", config.value().profiles, kProfilesMend);
  if (status.ok() && config.value().model_root) {
    status = must_exist(file, "/model_root", *config.value().model_root,
                        "make the folder, correct the path, or take it out");
  }
  if (status.ok()) status = check_tls(file, "/tls", config.value().tls);
  if (status.ok()) status = check_tls(file, "/backend_tls", config.value().backend_tls);
  if (status.ok()) status = check_tokens(file, config.value().tokens);
  return status;
}

Status check_backend(const std::filesystem::path& file) {
  const auto config = load_backend(file);
  if (!config.ok()) return config.status();
  Status status;
  if (!config.value().profiles.empty()) {
    status = must_exist(file, "/profiles", config.value().profiles, kProfilesMend);
  }
  if (status.ok() && !config.value().proxy.empty()) {
    status =
        must_exist(file, "/proxy", config.value().proxy, "build gpulet-proxy or correct the path");
  }
  if (status.ok()) status = check_tls(file, "/tls", config.value().tls);
  return status;
}

Status check_kind(std::string_view kind, const std::filesystem::path& file) {
  if (kind == "demand") return load_demand(file).status();
  if (kind == "cluster") return load_cluster(file).status();
  if (kind == "workload") return check_workload(file);
  if (kind == "control") return load_control(file).status();
  if (kind == "models") return check_models(file);
  if (kind == "frontend") return check_frontend(file);
  return check_backend(file);
}

}  // namespace

Result<std::string> check_file(const std::filesystem::path& file) {
  const Result<JsonCursor> root = JsonCursor::read_file(file);
  if (!root.ok()) return root.status();
  const Result<std::string_view> kind = recognise(root.value());
  if (!kind.ok()) return kind.status();
  if (Status status = check_kind(kind.value(), file); !status.ok()) return status;
  return std::string(kind.value());
}

}  // namespace gpulet::config
