#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/plan_report.h"
#include "tools/report/svg.h"

namespace gpulet::tools {
namespace {

using schedule::mig::ServiceRate;
using schedule::mig::ServingInstance;
using schedule::mig::Stage;
using schedule::mig::Transition;
using schedule::mig::TransitionTask;

constexpr int kMargin = 24;
constexpr int kDeviceWidth = 44;
constexpr int kDeviceHeight = 128;
constexpr int kGap = 8;       // between devices
constexpr int kNodeGap = 12;  // in addition, between nodes
constexpr std::size_t kMostDevicesPerLine = 24;
constexpr int kTitlePx = 15, kTextPx = 12, kSmallPx = 10;
constexpr int kTitleHeight = 24, kNodeHeight = 16, kNumberHeight = 18, kMomentGap = 18;
constexpr int kLegendHeight = 20, kSwatch = 12;
constexpr std::size_t kMostStages = 4;  // draws the fullest ones

enum class Change : std::uint8_t { none, created, removed };

struct Shown {
  const ServingInstance* serving = nullptr;
  Change change = Change::none;
};

struct Moment {
  std::string title;
  std::vector<Shown> shown;
};

std::string count_text(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::size_t count_devices(const std::vector<Shown>& shown) {
  std::set<std::uint32_t> devices;
  for (const Shown& one : shown) devices.insert(one.serving->device);
  return devices.size();
}

Moment steady_moment(std::string_view when, const std::vector<ServingInstance>& serving_instances) {
  Moment moment;
  for (const ServingInstance& serving : serving_instances)
    moment.shown.push_back({&serving, Change::none});
  moment.title = fmt::format("{}: {}, {}", when, count_text(count_devices(moment.shown), "device"),
                             count_text(serving_instances.size(), "instance"));
  return moment;
}

// The moment when all new instances serve and none is removed yet.
Moment fullest_moment(const Transition& transition, std::size_t index) {
  const Stage& stage = transition.stages[index];
  Moment moment;
  for (const ServingInstance& serving : stage.removed)
    moment.shown.push_back({&serving, Change::removed});
  for (const ServingInstance& serving : stage.after) {
    const bool is_new = std::any_of(
        stage.created.begin(), stage.created.end(), [&](const ServingInstance& created) {
          return created.device == serving.device && created.instance == serving.instance;
        });
    moment.shown.push_back({&serving, is_new ? Change::created : Change::none});
  }
  moment.title = fmt::format("Stage {} of {}: {}", index + 1, transition.stages.size(),
                             count_text(stage.devices_in_use, "device"));
  if (!stage.created.empty()) moment.title += fmt::format(", {} created", stage.created.size());
  if (!stage.removed.empty()) {
    moment.title +=
        fmt::format(", {}{} removed", stage.created.empty() ? "" : "then ", stage.removed.size());
  }
  return moment;
}

std::vector<std::size_t> fullest_stages(const Transition& transition) {
  std::vector<std::size_t> stages(transition.stages.size());
  for (std::size_t index = 0; index < stages.size(); ++index) stages[index] = index;
  const auto fullness = [&](std::size_t index) {
    const Stage& stage = transition.stages[index];
    return std::pair(stage.devices_in_use, stage.after.size() + stage.removed.size());
  };
  std::stable_sort(stages.begin(), stages.end(),
                   [&](std::size_t a, std::size_t b) { return fullness(a) > fullness(b); });
  if (stages.size() > kMostStages) stages.resize(kMostStages);
  std::sort(stages.begin(), stages.end());
  return stages;
}

class Picture {
 public:
  Picture(const Transition& transition, const TransitionTask& task) : task_(task) {
    moments_.push_back(steady_moment("Before", task.from));
    for (const std::size_t index : fullest_stages(transition))
      moments_.push_back(fullest_moment(transition, index));
    moments_.push_back(steady_moment("After", task.to));
    std::set<std::uint32_t> used;
    for (const Moment& moment : moments_) {
      for (const Shown& one : moment.shown) used.insert(one.serving->device);
    }
    devices_.assign(used.begin(), used.end());
    const std::size_t lines =
        std::max<std::size_t>((devices_.size() + kMostDevicesPerLine - 1) / kMostDevicesPerLine, 1);
    per_line_ = std::max<std::size_t>((devices_.size() + lines - 1) / lines, 1);
    width_ = std::max(full_width(), 640);
  }

  std::string draw() {
    y_ = kMargin;
    legend();
    for (const Moment& moment : moments_) {
      svg_.text(kMargin, y_ + kTitlePx, kTitlePx, "font-weight=\"bold\"", moment.title);
      y_ += kTitleHeight;
      for (std::size_t first = 0; first < devices_.size(); first += per_line_)
        line(moment, first, std::min(first + per_line_, devices_.size()));
      y_ += kMomentGap;
    }
    return svg_.document(width_, y_);
  }

 private:
  bool begins_node(std::size_t at, std::size_t first) const {
    return at == first || task_.devices[devices_[at]].node != task_.devices[devices_[at - 1]].node;
  }

  // The left edges of the devices of a line, and then the right end of the last one.
  std::vector<int> edges(std::size_t first, std::size_t end) const {
    std::vector<int> x;
    int next = kMargin;
    for (std::size_t at = first; at < end; ++at) {
      if (at > first && begins_node(at, first)) next += kNodeGap;
      x.push_back(next);
      next += kDeviceWidth + kGap;
    }
    x.push_back(next - kGap);
    return x;
  }

  int full_width() const {
    int right = 0;
    for (std::size_t first = 0; first < devices_.size(); first += per_line_)
      right = std::max(right, edges(first, std::min(first + per_line_, devices_.size())).back());
    return right + kMargin;
  }

  // Wraps the entries into lines.
  void legend() {
    int x = kMargin;
    const auto entry = [&](std::string_view style, std::string_view name) {
      const std::string shown = cut_to(name, 240, kTextPx);
      const int wide = kSwatch + 6 + text_width(shown, kTextPx) + 16;
      if (x > kMargin && x + wide > width_ - kMargin) {
        x = kMargin;
        y_ += kLegendHeight;
      }
      svg_.rect({x, y_, kSwatch, kSwatch}, style);
      svg_.text(x + kSwatch + 6, y_ + kSwatch - 2, kTextPx, "", shown);
      x += wide;
    };
    for (std::size_t service = 0; service < task_.services.size(); ++service)
      entry("fill=\"" + fill_colour(service) + "\"", task_.services[service]);
    x = kMargin;
    y_ += kLegendHeight;
    entry("fill=\"#ffffff\" stroke=\"#1f2328\" stroke-width=\"2\"", "+ is created");
    entry("fill=\"#ffffff\" stroke=\"#6e7781\" stroke-dasharray=\"3 2\"",
          "− is removed once those serve");
    entry("fill=\"#e6e9ed\" stroke=\"#d0d7de\"", "free, on a device in use");
    y_ += kLegendHeight + kMomentGap;
  }

  void line(const Moment& moment, std::size_t first, std::size_t end) {
    const std::vector<int> x = edges(first, end);
    for (std::size_t at = first; at < end; ++at) {
      if (!begins_node(at, first)) continue;
      std::size_t after = at + 1;
      while (after < end && !begins_node(after, first)) ++after;
      const int room = x[after - 1 - first] + kDeviceWidth - x[at - first];
      const std::string& node = task_.devices[devices_[at]].node;
      svg_.text(x[at - first], y_ + kSmallPx, kSmallPx, "fill=\"#57606a\"",
                cut_to(node, room, kSmallPx));
    }
    y_ += kNodeHeight;
    for (std::size_t at = first; at < end; ++at) {
      const Box box{x[at - first], y_, kDeviceWidth, kDeviceHeight};
      const bool is_used =
          std::any_of(moment.shown.begin(), moment.shown.end(),
                      [&](const Shown& one) { return one.serving->device == devices_[at]; });
      svg_.rect(box, is_used ? "fill=\"#e6e9ed\" stroke=\"#d0d7de\""
                             : "fill=\"#ffffff\" stroke=\"#d0d7de\"");
      for (const Shown& one : moment.shown) {
        if (one.serving->device == devices_[at]) instance(one, box);
      }
      svg_.text(box.x + kDeviceWidth / 2, y_ + kDeviceHeight + 12, kSmallPx,
                "text-anchor=\"middle\" fill=\"#57606a\"",
                std::to_string(task_.devices[devices_[at]].number));
    }
    y_ += kDeviceHeight + kNumberHeight;
  }

  // The height follows from the memory slices; each service is a column.
  void instance(const Shown& one, const Box& device) {
    const partition::MigGeometry& geometry = task_.devices[one.serving->device].geometry;
    const partition::MigInstance& instance = one.serving->instance;
    const int slice = kDeviceHeight / static_cast<int>(geometry.memory_slices());
    const auto slices = static_cast<int>(geometry.find(instance.slices)->memory_slices);
    const Box box{device.x + 2, device.y + slice * static_cast<int>(instance.start) + 1,
                  kDeviceWidth - 4, slice * slices - 2};
    const bool is_removed = one.change == Change::removed;
    const auto columns = static_cast<int>(one.serving->parts.size());
    for (int column = 0; column < columns; ++column) {
      const ServiceRate& part = one.serving->parts[static_cast<std::size_t>(column)];
      const int left = box.width * column / columns;
      const int right = box.width * (column + 1) / columns;
      svg_.rect({box.x + left, box.y, right - left, box.height},
                fmt::format(R"(fill="{}"{})", fill_colour(part.service),
                            is_removed ? R"( fill-opacity="0.4")" : ""));
    }
    svg_.rect(box, outline(one.change), tooltip(*one.serving));
    const std::string sign = is_removed ? "−" : one.change == Change::created ? "+" : "";
    svg_.text(box.x + box.width / 2, box.y + box.height / 2 + 4, kSmallPx,
              "text-anchor=\"middle\" pointer-events=\"none\"",
              sign + partition::mig_profile_name(instance.slices));
  }

  static std::string_view outline(Change change) {
    switch (change) {
      case Change::created:
        return "fill-opacity=\"0\" stroke=\"#1f2328\" stroke-width=\"2\"";
      case Change::removed:
        return "fill-opacity=\"0\" stroke=\"#6e7781\" stroke-dasharray=\"3 2\"";
      case Change::none:
        break;
    }
    return "fill-opacity=\"0\" stroke=\"#8c959f\" stroke-width=\"0.5\"";
  }

  std::string tooltip(const ServingInstance& serving) const {
    const auto& device = task_.devices[serving.device];
    std::string text = fmt::format("{} on device {} of {}", to_string(serving.instance),
                                   device.number, device.node);
    for (const ServiceRate& part : serving.parts) {
      text +=
          fmt::format("\n{}: {} requests/s", task_.services[part.service], std::lround(part.rate));
    }
    return text;
  }

  const TransitionTask& task_;
  std::vector<Moment> moments_;
  std::vector<std::uint32_t> devices_;  // in use at any moment
  std::size_t per_line_ = 1;            // devices on each line
  int width_ = 0;
  int y_ = 0;
  Svg svg_;
};

}  // namespace

std::string draw_transition(const schedule::mig::Transition& transition,
                            const schedule::mig::TransitionTask& task) {
  return Picture(transition, task).draw();
}

}  // namespace gpulet::tools
