// The commands that show the state of a running frontend: status, top, wait and logs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"
#include "tools/report/status_document.h"
#include "tools/report/status_picture.h"
#include "tools/report/terminal.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortestInterval = 0.1;
constexpr double kLongestInterval = 3600;

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(from_seconds(count));
}

// Returns false if a signal ends it before `end`.
bool sleep_until(Clock::time_point end, SignalWatch& interrupt) {
  constexpr Clock::duration kSignalPoll = std::chrono::milliseconds(100);
  while (Clock::now() < end) {
    if (interrupt.take()) return false;
    std::this_thread::sleep_for(std::min(kSignalPoll, end - Clock::now()));
  }
  return true;
}

// ---- status

struct StatusOptions {
  TargetOptions target;
  bool json = false;
  bool local = false;
};

int print_status(const std::string& document) {
  const auto parsed = nlohmann::ordered_json::parse(document, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return run_failed(
        Status(StatusCode::malformed, "the frontend's status is not a JSON document"));
  }
  std::cout << json_page(parsed);
  return kSucceeded;
}

int status(const StatusOptions& options, const load::Target& target) {
  const Result<std::string> document = load::fetch_status(
      target, load::kCallTimeout, options.local ? load::StatusOf::target : load::StatusOf::cluster);
  if (!document.ok()) return run_failed(document.status());
  if (options.json) return print_status(document.value());
  const Terminal terminal = describe_terminal(stdout);
  const Result<std::string> picture =
      render_status(document.value(), {.utf8 = terminal.utf8, .colour = terminal.colour});
  if (!picture.ok()) return run_failed(picture.status().within(options.target.address));
  std::cout << picture.value();
  return kSucceeded;
}

// ---- top

// Short, because keys have no effect while a request waits for its reply.
constexpr Duration kTopTimeout = std::chrono::seconds(1);

struct TopOptions {
  TargetOptions target;
  double interval_s = 1;
  bool json = false;
  std::uint64_t count = 0;  // with `json`: the number of documents; 0: unlimited
};

// The latest status document, and how far the user has scrolled in its picture.
class StatusView {
 public:
  StatusView(const TopOptions& options, PictureStyle style, std::string document)
      : options_(options), style_(style), document_(std::move(document)) {}

  void update(const Result<std::string>& fetched) {
    failure_ = fetched.ok() ? std::string() : fetched.status().message();
    if (fetched.ok()) document_ = fetched.value();
  }

  void press(Key key, const Window& window) {
    first_ = scrolled(first_, key, count_lines(picture(window)), window.rows - 1);
  }

  [[nodiscard]] std::string screen(const Window& window) const {
    std::string title = "gpulet top: " + options_.target.address + " every " +
                        shortest(options_.interval_s, 1) + " s; q quits, the arrow keys scroll";
    if (!failure_.empty()) title = "no response: showing the latest status";
    if (style_.colour) title = (failure_.empty() ? "\033[1m" : "\033[1;31m") + title;
    return compose_screen(title, picture(window), first_, window);
  }

 private:
  [[nodiscard]] std::string picture(const Window& window) const {
    PictureStyle style = style_;
    style.columns = window.columns;
    const Result<std::string> drawn = render_status(document_, style);
    if (!drawn.ok()) return wrapped(drawn.status().message(), window.columns, 0);
    return failure_.empty() ? drawn.value()
                            : wrapped(failure_, window.columns, 0) + '\n' + drawn.value();
  }

  const TopOptions& options_;
  const PictureStyle style_;
  std::string document_;
  std::string failure_;    // of the last request; empty: it succeeded
  std::size_t first_ = 0;  // the line of the picture that is at the top
};

int show_live(const TopOptions& options, const load::Target& target, const PictureStyle& style,
              std::string document) {
  const Clock::duration interval = seconds(options.interval_s);
  StatusView view(options, style, std::move(document));
  LiveTerminal terminal;
  Clock::time_point next = Clock::now() + interval;
  for (;;) {
    const Window window = terminal.window();
    terminal.write(view.screen(window));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const LiveTerminal::Event event = terminal.wait(std::max(left, std::chrono::milliseconds(0)));
    if (event.ended) return kSucceeded;
    for (const Key key : keys_of(event.typed)) {
      if (key == Key::quit) return kSucceeded;
      view.press(key, window);
    }
    if (!event.timed_out) continue;
    view.update(load::fetch_status(target, kTopTimeout));
    next = Clock::now() + interval;
  }
}

// Prints one document per line, until a signal or `count` documents.
int print_documents(const TopOptions& options, const load::Target& target) {
  SignalWatch interrupt{SIGINT, SIGTERM};
  Clock::time_point next = Clock::now();
  for (std::uint64_t printed = 0; options.count == 0 || printed < options.count; ++printed) {
    if (!sleep_until(next, interrupt)) return kSucceeded;
    const Result<std::string> document = load::fetch_status(target);
    if (!document.ok()) return run_failed(document.status());
    std::cout << document.value() << std::endl;
    if (!std::cout) return kSucceeded;  // the reader is gone
    next = Clock::now() + seconds(options.interval_s);
  }
  return kSucceeded;
}

int top(const TopOptions& options, const load::Target& target) {
  if (options.json) return print_documents(options, target);
  const Terminal terminal = describe_terminal(stdout);
  const PictureStyle style{.utf8 = terminal.utf8, .colour = terminal.colour};
  Result<std::string> document = load::fetch_status(target, load::kCallTimeout);
  if (!document.ok()) return run_failed(document.status());
  const Result<std::string> picture = render_status(document.value(), style);
  if (!picture.ok()) return run_failed(picture.status());
  if (LiveTerminal::possible())
    return show_live(options, target, style, std::move(document).value());
  std::cout << picture.value();
  return kSucceeded;
}

// ---- wait

constexpr auto kPollInterval = std::chrono::milliseconds(200);
constexpr Duration kPollTimeout = std::chrono::seconds(2);
constexpr double kLongestWaitSeconds = 86400;

struct WaitOptions {
  TargetOptions target;
  WaitCondition condition;
  double timeout_s = 120;
};

// A frontend that is starting refuses connections or is silent. Other failures are permanent.
bool is_temporary(const Status& failure) {
  return failure.code() == StatusCode::unavailable || failure.code() == StatusCode::timeout;
}

// What is missing, as missing_for(); the frontend itself while its failure is temporary.
Result<std::string> poll(const load::Target& target, const WaitCondition& condition) {
  const Result<std::string> document = load::fetch_status(target, kPollTimeout);
  if (document.ok()) return missing_for(document.value(), condition);
  if (!is_temporary(document.status())) return document.status();
  return "the frontend: " + document.status().message();
}

int wait(const WaitOptions& options, const load::Target& target) {
  const Clock::time_point deadline = Clock::now() + seconds(options.timeout_s);
  SignalWatch interrupt{SIGINT, SIGTERM};
  std::string printed;  // the latest message, which is not repeated
  for (;;) {
    const Result<std::string> missing = poll(target, options.condition);
    if (!missing.ok()) return run_failed(missing.status());
    if (missing.value().empty()) {
      std::cout << options.target.address << " is ready\n";
      return kSucceeded;
    }
    if (missing.value() != printed) std::cerr << "waiting for " << missing.value() << '\n';
    printed = missing.value();
    if (interrupt.take()) return run_failed({StatusCode::cancelled, "interrupted"});
    if (Clock::now() >= deadline) {
      return run_failed(
          {StatusCode::timeout,
           fmt::format("{} is not ready after {} s: it waits for {}", options.target.address,
                       shortest(options.timeout_s, 1), printed)});
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

// ---- logs

struct LogsOptions {
  TargetOptions target;
  bool follow = false;
  bool json = false;
  double interval_s = 1;
};

void print_event(const FrontendEvent& event, bool as_json) {
  if (as_json) {
    nlohmann::ordered_json line{
        {"at_s", event.at_s}, {"text", event.text}, {"warning", event.warning}};
    if (event.unix_s) line["unix_s"] = *event.unix_s;
    std::cout << line.dump() << '\n';
    return;
  }
  const std::string when =
      event.unix_s ? date_and_clock_text(*event.unix_s) : fixed(event.at_s, 1) + " s";
  std::cout << when << "  " << (event.warning ? "warning: " : "") << event.text << '\n';
}

Status print_new_events(const load::Target& target, EventTail& tail, bool as_json) {
  GPULET_TRY(const std::string document, load::fetch_status(target));
  GPULET_TRY(const std::vector<FrontendEvent> events, tail.new_events(document));
  for (const FrontendEvent& event : events) print_event(event, as_json);
  std::cout << std::flush;
  return {};
}

// Continues while the frontend does not respond, because it may be restarting. Reports once that it
// does not, and once that it responds again.
int follow(const LogsOptions& options, const load::Target& target, EventTail& tail) {
  SignalWatch interrupt{SIGINT, SIGTERM};
  bool responds = true;
  while (sleep_until(Clock::now() + seconds(options.interval_s), interrupt)) {
    const Status printed = print_new_events(target, tail, options.json);
    if (!std::cout) return kSucceeded;  // the reader is gone
    if (printed.ok() == responds) continue;
    responds = printed.ok();
    std::cerr << "gpulet: "
              << (responds ? options.target.address + ": responds again" : printed.message())
              << '\n';
  }
  return kSucceeded;
}

int logs(const LogsOptions& options, const load::Target& target) {
  EventTail tail;
  if (const Status printed = print_new_events(target, tail, options.json); !printed.ok())
    return run_failed(printed);
  return options.follow ? follow(options, target, tail) : kSucceeded;
}

}  // namespace

void add_status_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "status",
                  "print the devices, gpulets, models and events of a running frontend", status);
  add_target_options(*command, options->target);
  command->add_flag("--json", options->json, "print the status document");
  command->add_flag("--local", options->local,
                    "the status of the target itself, even if another frontend leads its cluster");
}

void add_top_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "top", "watch the status of a running frontend in the terminal", top);
  add_target_options(*command, options->target);
  add_checked(*command, "--interval", options->interval_s, "seconds between updates",
              number_within(kShortestInterval, kLongestInterval));
  CLI::Option* const as_json = command->add_flag(
      "--json", options->json, "print one status document per line and interval until Ctrl-C");
  add_checked(*command, "--count", options->count,
              "with --json: stop after this many documents; 0: never", natural_number())
      ->needs(as_json);
  command->footer(
      "q or Ctrl-C quits; arrows, page keys, home and end scroll. Without a terminal as standard "
      "input and output, prints the status once.");
}

void add_wait_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "wait", "wait until a frontend accepts requests, or until models serve", wait);
  command
      ->add_option("models", options->condition.models,
                   "wait until these models serve (default: until the frontend accepts requests)")
      ->type_name(kModelName);
  command->add_flag("--all", options->condition.all, "wait until every model serves");
  add_target_options(*command, options->target);
  add_checked(*command, "--timeout", options->timeout_s, "seconds before giving up",
              number_within(0, kLongestWaitSeconds));
  command->footer("Exits with 0 once the condition holds, and with 1 if it does not hold in time.");
}

void add_logs_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "logs", "print the latest events of a running frontend", logs);
  add_target_options(*command, options->target);
  command->add_flag("--follow,-f", options->follow, "keep printing new events until Ctrl-C");
  add_checked(*command, "--interval", options->interval_s,
              "with --follow: seconds between requests",
              number_within(kShortestInterval, kLongestInterval));
  command->add_flag("--json", options->json, "print one JSON document per line");
  command->footer("The frontend keeps only the latest events; its log has all of them.");
}

}  // namespace gpulet::tools
