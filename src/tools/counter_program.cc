// CounterProgram: `ncu` over gpulet-kernels (tools/counters.h).
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/partition/driver.h"
#include "tools/counters.h"
#include "tools/own_folder.h"

namespace gpulet::tools {
namespace {

// Kernels run again and again under ncu, each once for every group of counters: few batches do.
constexpr const char* kMeasuredBatches = "2";

// The first of PATH that may be run, or the place itself where one is named.
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

// This process's own, with these in place of those of their names.
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

// Runs it to its end, its standard output and errors into that file; how it ended, as waitpid
// tells.
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
    return Status(StatusCode::unavailable, "cannot start " + arguments.front() + ": " +
                                               std::generic_category().message(failed));
  }
  int ended = 0;
  while (::waitpid(process, &ended, 0) != process) {
  }
  return ended;
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

Result<CounterProgram> CounterProgram::find(const Programs& programs) {
  const auto ncu = find_in_path(programs.ncu.empty() ? "ncu" : programs.ncu);
  if (ncu.empty()) {
    return Status(StatusCode::not_found,
                  programs.ncu.empty()
                      ? "there is no ncu in PATH; install Nsight Compute, or name it with --ncu"
                      : "--ncu " + programs.ncu + ": there is no such program");
  }
  if (::access(programs.kernels.c_str(), X_OK) != 0) {
    return Status(StatusCode::not_found,
                  "there is no program " + programs.kernels.string() + "; build gpulet-kernels");
  }
  return CounterProgram(ncu, programs.kernels);
}

Result<Counters> CounterProgram::measure(const std::filesystem::path& models,
                                         const std::string& model, std::uint32_t batch,
                                         const std::string& gpu_uuid) const {
  const auto folder = OwnFolder::make("gpulet-counters-");
  if (!folder.ok()) return folder.status();
  const std::string metrics =
      std::string(kDurationMetric) + "," + std::string(kL2Metric) + "," + std::string(kDramMetric);
  const auto output = folder.value().path() / "output";
  // Caches stay as the kernel before left them, and clocks as they are: as in serving.
  const auto ended =
      run_into(output,
               {ncu_.string(),
                "--csv",
                "--page",
                "raw",
                "--print-units",
                "base",
                "--profile-from-start",
                "off",
                "--cache-control",
                "none",
                "--clock-control",
                "none",
                "--target-processes",
                "application-only",
                "--metrics",
                metrics,
                kernels_.string(),
                "run",
                "--models",
                models.string(),
                "--model",
                model,
                "--batch",
                std::to_string(batch),
                "--batches",
                kMeasuredBatches,
                "--device",
                "cuda:0"},
               // No daemon is there: the machine's own would be found otherwise.
               {"CUDA_MPS_PIPE_DIRECTORY=" + (folder.value().path() / "no-mps").string(),
                "CUDA_VISIBLE_DEVICES=" + gpu_uuid, "LC_ALL=C"});
  if (!ended.ok()) return ended.status();
  if (WIFSIGNALED(ended.value()) != 0) {
    return Status(StatusCode::cancelled,
                  "ncu was ended by signal " + std::to_string(WTERMSIG(ended.value())));
  }
  return parse_counters(text_of(output));
}

}  // namespace gpulet::tools
