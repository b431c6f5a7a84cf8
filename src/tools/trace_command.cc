// gpulet trace: what becomes of the requests that a running frontend gets meanwhile.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "gpulet/load/page.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/progress_line.h"
#include "tools/signal_watch.h"
#include "tools/table.h"
#include "tools/target_options.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double kLongestSeconds = 600;
// On top of the time that is traced: to connect, and to send what may be a large answer.
constexpr Duration kPatience = std::chrono::seconds(60);

struct TraceOptions {
  TargetOptions target;
  double seconds = 10;
  std::string format = "chrome";
  std::string out;
  bool json = false;
};

// Tells how far it is.
class Progress {
 public:
  explicit Progress(double seconds) : seconds_(seconds) {}

  void update() const {
    const double passed = std::chrono::duration<double>(Clock::now() - began_).count();
    const std::string text =
        passed < seconds_ ? fixed(passed, 1) + " of " + fixed(seconds_, 1) + " s; Ctrl-C ends it"
                          : "waiting for the answer";
    line_.show("tracing: " + text);
  }

 private:
  const double seconds_;
  const ProgressLine line_;
  const Clock::time_point began_ = Clock::now();
};

Result<std::string> fetch(const TraceOptions& options, const load::Target& target) {
  const std::string path =
      "/gpulet/trace?seconds=" + shortest(options.seconds, 3) + "&format=" + options.format;
  const Progress progress(options.seconds);
  SignalWatch signals({SIGINT, SIGTERM});
  return load::fetch_page(target, path, from_seconds(options.seconds) + kPatience, [&] {
    progress.update();
    return !signals.take().has_value();
  });
}

Status cannot_write(const std::string& file) {
  return {StatusCode::invalid, "--out: " + file + " cannot be written"};
}

// Not after minutes of tracing, but before.
Status check_writable(const std::string& file) {
  std::error_code ignored;
  const bool there = std::filesystem::exists(file, ignored);
  const bool writable = std::ofstream(file, std::ios::app).is_open();
  if (!there && writable) std::filesystem::remove(file, ignored);
  return writable ? Status() : cannot_write(file);
}

Status write(const std::string& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  return stream ? Status() : cannot_write(file);
}

ordered_json document_of(const TraceOptions& options, const std::string& text) {
  ordered_json document = {
      {"format", options.format}, {"seconds", options.seconds}, {"bytes", text.size()}};
  if (!options.out.empty()) {
    document["file"] = options.out;
    return document;
  }
  auto parsed = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool whole = options.format == "chrome" && !parsed.is_discarded();
  document["trace"] = whole ? std::move(parsed) : ordered_json(text);
  return document;
}

int trace(const TraceOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  if (!options.out.empty()) {
    if (const Status status = check_writable(options.out); !status.ok()) return bad_input(status);
  }
  const Result<std::string> text = fetch(options, target.value());
  if (!text.ok()) return run_failed(text.status());
  if (!options.out.empty()) {
    if (const Status status = write(options.out, text.value()); !status.ok())
      return run_failed(status);
  }
  if (options.json) {
    std::cout << document_of(options, text.value()).dump() << '\n';
  } else if (options.out.empty()) {
    std::cout << text.value();
  } else {
    std::cerr << options.out << ": " << text.value().size() << " bytes\n";
  }
  return kSucceeded;
}

}  // namespace

void add_trace_command(CLI::App& app, Run& chosen) {
  CLI::App* const command = app.add_subcommand(
      "trace", "trace every request that a running frontend gets for some seconds");
  const auto options = std::make_shared<TraceOptions>();
  options->target.address = "127.0.0.1:8000";
  add_target_options(*command, options->target);
  command->get_option("--target")->description("the frontend's address for HTTP");
  command
      ->add_option("--seconds", options->seconds,
                   "how long; 0: what it has kept by itself (trace_every)")
      ->check(number_within(0, kLongestSeconds))
      ->capture_default_str();
  command
      ->add_option(
          "--format", options->format,
          "chrome: JSON that Perfetto and chrome://tracing open; log, applications: CSV of "
          "requests for models, for applications")
      ->check(one_of({"chrome", "log", "applications"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "the file to write; standard output otherwise");
  command->add_flag("--json", options->json,
                    "print one JSON document: what was traced, and where it is");
  command->footer("It is an admin call: a frontend with admin tokens wants one.");
  command->callback([options, &chosen] { chosen = [options] { return trace(*options); }; });
}

}  // namespace gpulet::tools
