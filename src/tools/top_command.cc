// gpulet top: a running frontend's status, again and again in the terminal.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/live_terminal.h"
#include "tools/signal_watch.h"
#include "tools/status_picture.h"
#include "tools/table.h"
#include "tools/target_options.h"
#include "tools/terminal.h"
#include "tools/top_screen.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Keys wait while the frontend is asked.
constexpr Duration kAskTimeout = std::chrono::seconds(1);
constexpr Clock::duration kLookForSignals = std::chrono::milliseconds(100);
constexpr double kShortestInterval = 0.1;
constexpr double kLongestInterval = 3600;

struct TopOptions {
  TargetOptions target;
  double interval_s = 1;
  bool json = false;
  std::uint64_t count = 0;  // with json; 0: until it is stopped
};

// The latest status document, drawn as wide as the window, and where the window is over it.
class View {
 public:
  View(const TopOptions& options, PictureStyle style, std::string document)
      : options_(options), style_(style), document_(std::move(document)) {}

  void update(const Result<std::string>& asked) {
    failure_ = asked.ok() ? std::string() : asked.status().message();
    if (asked.ok()) document_ = asked.value();
  }

  void press(Key key, const Window& window) {
    first_ = scrolled(first_, key, count_lines(picture(window)), window.rows - 1);
  }

  [[nodiscard]] std::string screen(const Window& window) const {
    std::string title = "gpulet top: " + options_.target.address + " every " +
                        shortest(options_.interval_s, 1) + " s; q ends, the arrow keys scroll";
    if (!failure_.empty()) title = "no answer: what follows is from before";
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
  std::string failure_;
  std::size_t first_ = 0;
};

int show_live(const TopOptions& options, const load::Target& target, const PictureStyle& style,
              std::string document) {
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.interval_s));
  View view(options, style, std::move(document));
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
    view.update(load::fetch_status(target, kAskTimeout));
    next = Clock::now() + interval;
  }
}

// One document a line.
int print_json(const TopOptions& options, const load::Target& target) {
  SignalWatch interrupt{SIGINT, SIGTERM};
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.interval_s));
  Clock::time_point next = Clock::now();
  for (std::uint64_t printed = 0; options.count == 0 || printed < options.count; ++printed) {
    while (Clock::now() < next) {
      if (interrupt.take()) return kSucceeded;
      std::this_thread::sleep_for(std::min<Clock::duration>(kLookForSignals, next - Clock::now()));
    }
    const Result<std::string> document = load::fetch_status(target);
    if (!document.ok()) return run_failed(document.status());
    std::cout << document.value() << std::endl;
    if (!std::cout) return kSucceeded;  // nobody reads it any more
    next = Clock::now() + interval;
  }
  return kSucceeded;
}

int top(const TopOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  if (options.json) return print_json(options, target.value());
  const Terminal terminal = describe_terminal(stdout);
  const PictureStyle style{.utf8 = terminal.utf8, .colour = terminal.colour};
  Result<std::string> document = load::fetch_status(target.value(), load::kCallTimeout);
  if (!document.ok()) return run_failed(document.status());
  const Result<std::string> picture = render_status(document.value(), style);
  if (!picture.ok()) return run_failed(picture.status());
  if (LiveTerminal::possible())
    return show_live(options, target.value(), style, std::move(document).value());
  std::cout << picture.value();
  return kSucceeded;
}

}  // namespace

void add_top_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("top", "watch a running frontend's status in the terminal");
  const auto options = std::make_shared<TopOptions>();
  add_target_options(*command, options->target);
  command->add_option("--interval", options->interval_s, "seconds between two looks")
      ->check(number_within(kShortestInterval, kLongestInterval))
      ->capture_default_str();
  CLI::Option* const as_json = command->add_flag(
      "--json", options->json,
      "print the status document again and again, one a line, until it is stopped");
  command->add_option("--count", options->count, "with --json: so many documents; 0: no end")
      ->needs(as_json)
      ->check(natural_number())
      ->capture_default_str();
  command->footer(
      "q or Ctrl-C ends it; arrows, page keys, home and end scroll. Where its input or output is "
      "no "
      "terminal it prints the status once.");
  command->callback([options, &chosen] { chosen = [options] { return top(*options); }; });
}

}  // namespace gpulet::tools
