#include "tests/tools/program_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

extern char** environ;

namespace gpulet::tools {
namespace {

std::string take_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(file);
  return content;
}

}  // namespace

ProgramResult run_gpulet(const std::vector<std::string>& arguments) {
  return run_program_at(GPULET_PROGRAM, arguments);
}

ProgramResult run_program_at(const std::string& path, const std::vector<std::string>& arguments) {
  const std::string prefix =
      (std::filesystem::temp_directory_path() / ("gpulet_run_" + std::to_string(getpid())))
          .string();
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_CREAT | O_TRUNC | O_WRONLY;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (prefix + ".out").c_str(), kFlags,
                                   0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (prefix + ".err").c_str(), kFlags,
                                   0600);
  pid_t child = 0;
  const int error = posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + path);

  int status = 0;
  waitpid(child, &status, 0);
  ProgramResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.output = take_file(prefix + ".out");
  result.errors = take_file(prefix + ".err");
  return result;
}

std::string bash_completions(const std::string& script, const std::string& words) {
  const std::string command =
      "gpulet() { " GPULET_PROGRAM " \"$@\"; }; . " + script + "; COMP_WORDS=(" + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpulet; echo \"${COMPREPLY[*]}\"";
  const std::unique_ptr<FILE, int (*)(FILE*)> shell(
      popen(("bash -c '" + command + "'").c_str(), "r"), pclose);
  std::array<char, 4096> line{};
  if (!shell || fgets(line.data(), line.size(), shell.get()) == nullptr) return "";
  return std::string(line.data());
}

}  // namespace gpulet::tools
