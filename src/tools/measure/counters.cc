#include "tools/measure/counters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "tools/measure/scratch_folder.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

// ncu quotes every field and doubles quotes within a field.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char letter = line[i];
    if (letter == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

// Accepts "1,234.5"; empty for other text, such as "n/a".
std::optional<double> parse_metric(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) && *value >= 0 ? value : std::nullopt;
}

struct Columns {
  std::size_t l2 = 0;
  std::size_t dram = 0;
  std::size_t duration = 0;
};

std::optional<Columns> columns_of(const std::vector<std::string>& header) {
  const auto find = [&header](std::string_view name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const Columns columns{find(kL2Metric), find(kDramMetric), find(kDurationMetric)};
  const std::size_t last = std::max({columns.l2, columns.dram, columns.duration});
  return last < header.size() ? std::optional(columns) : std::nullopt;
}

struct Sums {
  double l2 = 0;  // percent times duration
  double dram = 0;
  double duration = 0;
  double launches = 0;

  void add(const std::vector<std::string>& row, const Columns& columns) {
    if (row.size() <= std::max({columns.l2, columns.dram, columns.duration})) return;
    if (!parse_metric(row.front())) return;  // the row of units has no number
    ++launches;
    const auto l2_percent = parse_metric(row[columns.l2]);
    const auto dram_percent = parse_metric(row[columns.dram]);
    const auto took = parse_metric(row[columns.duration]);
    if (!l2_percent || !dram_percent || !took) return;
    l2 += *l2_percent * *took;
    dram += *dram_percent * *took;
    duration += *took;
  }
};

// Settings of a program that uses one GPU. A folder without a daemon keeps it out of the machine's.
std::vector<std::string> outside_mps(const std::filesystem::path& folder,
                                     const std::string& gpu_uuid) {
  return {"CUDA_MPS_PIPE_DIRECTORY=" + (folder / "no-mps").string(),
          "CUDA_VISIBLE_DEVICES=" + gpu_uuid, "LC_ALL=C"};
}

// The next line without its end, "\n" or "\r\n".
std::string_view next_line(std::string_view& rest) {
  std::string_view line = take_line(rest);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The last line that is not empty, which has a program's error; "none" without one.
std::string last_line(std::string_view text) {
  std::string_view last = "none";
  while (!text.empty()) {
    if (const std::string_view line = next_line(text); !line.empty()) last = line;
  }
  return std::string(last);
}

Status no_kernel(std::string_view text) {
  if (text.find("ERR_NVGPUCTRPERM") != std::string_view::npos) {
    return {
        StatusCode::unavailable,
        "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM): run as root, or load the driver "
        "with NVreg_RestrictProfilingToAdminUsers=0"};
  }
  return {StatusCode::malformed, "ncu measured no kernel; its last line: " + last_line(text)};
}

// ---- CounterProgram

// Few batches suffice, because ncu repeats each kernel for every group of counters.
constexpr std::uint32_t kMeasuredBatches = 2;

// The first executable of PATH with that name, or the path itself if `program` is one; empty: none.
std::filesystem::path find_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos)
    return ::access(program.c_str(), X_OK) == 0 ? std::filesystem::path(program)
                                                : std::filesystem::path();
  const char* const path = ::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::filesystem::path candidate = std::filesystem::path(folder) / program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The environment of this process with these settings added or replaced.
std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  std::vector<std::string> all = settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& setting : settings) replaced = replaced || setting.starts_with(name);
    if (!replaced) all.emplace_back(variable);
  }
  return all;
}

// Runs a program with standard output and error redirected to the file. Returns its wait status.
Result<int> run_into(const std::filesystem::path& file, std::vector<std::string> arguments,
                     const std::vector<std::string>& settings) {
  std::vector<std::string> environment = environment_with(settings);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, file.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = 0;
  const int failed = ::posix_spawn(&process, arguments.front().c_str(), &actions, nullptr,
                                   pointers_to(arguments).data(), pointers_to(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return Status(StatusCode::unavailable, fmt::format("cannot start {}: {}", arguments.front(),
                                                       std::generic_category().message(failed)));
  }
  int ended = 0;
  while (::waitpid(process, &ended, 0) != process) {
  }
  return ended;
}

}  // namespace

Result<Counters> parse_counters(std::string_view text, std::uint32_t batches) {
  std::optional<Columns> columns;
  Sums sums;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = next_line(rest);
    if (!line.starts_with('"')) continue;
    const std::vector<std::string> fields = fields_of(line);
    if (columns) {
      sums.add(fields, *columns);
    } else {
      columns = columns_of(fields);
    }
  }
  if (sums.duration <= 0) return no_kernel(text);
  const auto fraction = [&sums](double sum) { return std::min(1.0, sum / sums.duration / 100); };
  return Counters{fraction(sums.l2), fraction(sums.dram), sums.launches / batches};
}

std::vector<profile::Utilization> scaled_to_sizes(const profile::Utilization& whole,
                                                  const profile::LatencyTable& latency) {
  std::vector<profile::Utilization> scaled{whole};
  const auto whole_ms = latency.latency_ms(whole.batch, whole.share);
  if (!whole_ms) return scaled;
  for (const profile::LatencySample& sample : latency.samples()) {
    if (sample.batch != whole.batch || sample.share == whole.share) continue;
    // Noise may make a smaller gpulet seem faster.
    const double part = std::min(1.0, *whole_ms / sample.latency_ms);
    scaled.push_back({whole.batch, sample.share, whole.l2 * part, whole.dram * part});
  }
  return scaled;
}

Result<CounterProgram> CounterProgram::find(const Programs& programs) {
  const auto ncu = find_in_path(programs.ncu.empty() ? "ncu" : programs.ncu);
  if (ncu.empty()) {
    return Status(StatusCode::not_found,
                  programs.ncu.empty()
                      ? "ncu is not in PATH; install Nsight Compute, or give its path with --ncu"
                      : "--ncu " + programs.ncu + ": no such program");
  }
  if (::access(programs.kernels.c_str(), X_OK) != 0) {
    return Status(StatusCode::not_found,
                  "no program " + programs.kernels.string() + "; build gpulet-kernels");
  }
  return CounterProgram(ncu, programs.kernels);
}

Result<Counters> CounterProgram::measure(const std::filesystem::path& models,
                                         const std::string& model, std::uint32_t batch,
                                         const std::string& gpu_uuid) const {
  GPULET_TRY(const auto folder, ScratchFolder::make("gpulet-counters-"));
  const std::string metrics = fmt::format("{},{},{}", kDurationMetric, kL2Metric, kDramMetric);
  const auto output = folder.path() / "output";
  // As in serving: caches keep the contents of the previous kernel, and clocks are not locked.
  std::istringstream settings(
      "--csv --page raw --print-units base --profile-from-start off --cache-control none "
      "--clock-control none --target-processes application-only --metrics");
  std::vector<std::string> arguments{ncu_.string()};
  for (std::string word; settings >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), {metrics, kernels_.string(), "run"});
  arguments.insert(arguments.end(), {"--models", models.string(), "--model", model});
  arguments.insert(arguments.end(), {"--batch", std::to_string(batch), "--batches"});
  arguments.insert(arguments.end(), {std::to_string(kMeasuredBatches), "--device", "cuda:0"});
  GPULET_TRY(const auto ended,
             run_into(output, std::move(arguments), outside_mps(folder.path(), gpu_uuid)));
  if (WIFSIGNALED(ended) != 0) {
    return Status(StatusCode::cancelled,
                  "ncu was ended by signal " + std::to_string(WTERMSIG(ended)));
  }
  return parse_counters(content_of(output), kMeasuredBatches);
}

Result<double> measure_bandwidth(const std::filesystem::path& kernels,
                                 const std::string& gpu_uuid) {
  GPULET_TRY(const auto folder, ScratchFolder::make("gpulet-bandwidth-"));
  const auto output = folder.path() / "output";
  GPULET_TRY(const auto ended,
             run_into(output, {kernels.string(), "bandwidth", "--device", "cuda:0"},
                      outside_mps(folder.path(), gpu_uuid)));
  if (WIFSIGNALED(ended) != 0) {
    return Status(StatusCode::cancelled,
                  "gpulet-kernels was ended by signal " + std::to_string(WTERMSIG(ended)));
  }
  const std::string last = last_line(content_of(output));
  const auto gbps = parse_number<double>(last);
  if (ended == 0 && gbps && std::isfinite(*gbps) && *gbps > 0) return *gbps;
  return Status(StatusCode::unavailable, "gpulet-kernels bandwidth failed; its last line: " + last);
}

}  // namespace gpulet::tools
