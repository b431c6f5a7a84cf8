// gpulet top: a running frontend's status, again and again in the terminal.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/live_terminal.h"
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
constexpr double kShortestInterval = 0.1;
constexpr double kLongestInterval = 3600;

struct TopOptions {
  TargetOptions target;
  double interval_s = 1;
};

Result<std::string> ask(const load::Target& target, const PictureStyle& style, Duration timeout) {
  const Result<std::string> document = load::fetch_status(target, timeout);
  if (!document.ok()) return document.status();
  return render_status(document.value(), style);
}

// The latest picture, and where the window is over it.
class View {
 public:
  View(const TopOptions& options, std::string picture)
      : options_(options), picture_(std::move(picture)) {}

  void update(const Result<std::string>& asked) {
    failure_ = asked.ok() ? std::string() : asked.status().message();
    if (asked.ok()) picture_ = asked.value();
  }

  void press(Key key, const Window& window) {
    first_ = scrolled(first_, key, count_lines(picture_), window.rows - 1);
  }

  [[nodiscard]] std::string screen(const Window& window, bool colour) const {
    std::string title = "gpulet top: " + options_.target.address + " every " +
                        shortest(options_.interval_s, 1) + " s; q ends, the arrow keys scroll";
    if (!failure_.empty()) title = "no answer, this is from before: " + failure_;
    if (colour) title = (failure_.empty() ? "\033[1m" : "\033[1;31m") + title;
    return compose_screen(title, picture_, first_, window);
  }

 private:
  const TopOptions& options_;
  std::string picture_;
  std::string failure_;
  std::size_t first_ = 0;
};

int show_live(const TopOptions& options, const load::Target& target, const PictureStyle& style,
              std::string picture) {
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.interval_s));
  View view(options, std::move(picture));
  LiveTerminal terminal;
  Clock::time_point next = Clock::now() + interval;
  for (;;) {
    const Window window = terminal.window();
    terminal.write(view.screen(window, style.colour));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const LiveTerminal::Event event = terminal.wait(std::max(left, std::chrono::milliseconds(0)));
    if (event.ended) return kSucceeded;
    for (const Key key : keys_of(event.typed)) {
      if (key == Key::quit) return kSucceeded;
      view.press(key, window);
    }
    if (!event.timed_out) continue;
    view.update(ask(target, style, kAskTimeout));
    next = Clock::now() + interval;
  }
}

int top(const TopOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  const Terminal terminal = describe_terminal(stdout);
  const PictureStyle style{.utf8 = terminal.utf8, .colour = terminal.colour};
  Result<std::string> picture = ask(target.value(), style, load::kCallTimeout);
  if (!picture.ok()) return run_failed(picture.status());
  if (LiveTerminal::possible())
    return show_live(options, target.value(), style, std::move(picture).value());
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
      ->check(CLI::Range(kShortestInterval, kLongestInterval))
      ->capture_default_str();
  command->footer(
      "q or Ctrl-C ends it; arrows, page keys, home and end scroll. Where its input or output is "
      "no "
      "terminal it prints the status once.");
  command->callback([options, &chosen] { chosen = [options] { return top(*options); }; });
}

}  // namespace gpulet::tools
