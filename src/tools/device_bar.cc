#include "tools/device_bar.h"

#include <algorithm>
#include <string_view>

#include "tools/status_picture.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

constexpr int kUsualWidth = 72;  // columns between the brackets
constexpr int kLeastWidth = 16;
constexpr int kAround = 4;  // columns before, after and of the brackets

struct Glyphs {
  std::string_view used;
  std::string_view free;
  std::string_view separator;
};

Glyphs glyphs_of(const PictureStyle& style) {
  if (style.utf8) return {"\u2593", "\u2591", "\u2502"};
  return {"#", ".", "|"};
}

std::string_view colour_of(const std::string& state) {
  if (state == "ready") return "\033[32m";
  if (state == "failed") return "\033[31m";
  return "\033[33m";  // on its way from one to the other
}

std::string percent_text(int percent) { return std::to_string(percent) + '%'; }

std::string size_text(const DeviceShare& share) {
  return percent_text(share.percent) + (share.instance.empty() ? "" : " ") + share.instance;
}

std::string names_of(const DeviceShare& share, bool with_details) {
  std::string names;
  for (const DeviceShare::Model& model : share.models) {
    if (!names.empty()) names += " + ";
    names += model.name;
    if (with_details && !model.details.empty()) names += ' ' + model.details;
  }
  return names;
}

std::string full_label(const DeviceShare& share) {
  std::string label = size_text(share) + ' ' + names_of(share, true);
  if (share.state != "ready") label += " (" + share.state + ')';
  return label;
}

// The most telling label that has room, or nothing.
std::string label_for(const DeviceShare& share, int width) {
  const std::string size = size_text(share);
  for (const std::string& label : {full_label(share), size + ' ' + names_of(share, false), size}) {
    if (static_cast<int>(display_width(label)) + 2 <= width) return label;
  }
  return {};
}

std::string filled(const std::string& label, std::string_view fill, int width) {
  const int spaces = label.empty() ? 0 : 2;
  const int rest = width - static_cast<int>(display_width(label)) - spaces;
  std::string text;
  for (int i = 0; i < rest / 2; ++i) text += fill;
  if (!label.empty()) text += ' ' + label + ' ';
  for (int i = rest / 2; i < rest; ++i) text += fill;
  return text;
}

int width_of(const PictureStyle& style) {
  if (style.columns == 0) return kUsualWidth;
  return std::max(kLeastWidth, static_cast<int>(style.columns) - kAround);
}

}  // namespace

std::string draw_device(const std::vector<DeviceShare>& shares, const PictureStyle& style) {
  const Glyphs glyphs = glyphs_of(style);
  int used = 0;
  for (const DeviceShare& share : shares) used += share.percent;
  const int whole = std::max(used, 100);
  const int bar_width = width_of(style);
  // Columns up to a share of the whole, rounded.
  const auto column = [&](int percent) { return (percent * bar_width + whole / 2) / whole; };

  std::string bar = "  [";
  std::string notes;
  int before = 0;
  const auto begin_segment = [&](int percent) {
    const int width = column(before + percent) - column(before);
    if (before > 0) bar += glyphs.separator;
    const int inner = std::max(before > 0 ? width - 1 : width, 0);
    before += percent;
    return inner;
  };
  for (const DeviceShare& share : shares) {
    const int width = begin_segment(share.percent);
    const std::string label = label_for(share, width);
    if (style.colour) bar += colour_of(share.state);
    bar += filled(label, glyphs.used, width);
    if (style.colour) bar += "\033[0m";
    if (label == full_label(share) && share.status.empty()) continue;
    const std::string status = share.status.empty() ? "" : ": " + share.status;
    notes += wrapped("    " + full_label(share) + status, style.columns, 6);
  }
  if (before < 100) {
    const std::string label = percent_text(100 - before) + " free";
    const int width = begin_segment(100 - before);
    bar += filled(static_cast<int>(display_width(label)) + 2 <= width ? label : "", glyphs.free,
                  width);
  }
  return bar + "]\n" + notes;
}

}  // namespace gpulet::tools
