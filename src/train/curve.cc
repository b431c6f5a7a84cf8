#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "gpulet/train/training.h"

namespace gpulet::train {
namespace {

constexpr int kWidth = 760, kPanelHeight = 150, kPanelGap = 46;
constexpr int kLeft = 78, kRight = 16, kTop = 34;
// Episodes on each side in a moving mean.
constexpr std::size_t kAround = 12;

std::string number(const char* format, double value) {
  std::array<char, 48> text{};
  const int length = std::snprintf(text.data(), text.size(), format, value);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::vector<double> means_around(const std::vector<double>& values) {
  std::vector<double> sums(values.size() + 1);
  for (std::size_t at = 0; at < values.size(); ++at) sums[at + 1] = sums[at] + values[at];
  std::vector<double> means(values.size());
  for (std::size_t at = 0; at < values.size(); ++at) {
    const std::size_t from = at < kAround ? 0 : at - kAround;
    const std::size_t to = std::min(values.size(), at + kAround + 1);
    means[at] = (sums[to] - sums[from]) / static_cast<double>(to - from);
  }
  return means;
}

// One plot of a series of finite values. REQUIRES: at least one.
class Panel {
 public:
  Panel(int top, std::string_view title, std::vector<double> values)
      : top_(top), title_(title), values_(std::move(values)) {
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    least_ = *least;
    range_ = std::max(*most - *least, 1e-9);
  }

  [[nodiscard]] std::string svg() const {
    std::string out = text(kLeft, top_ - 10, "start", title_);
    for (const double part : {0.0, 0.5, 1.0}) {
      const std::string height = number("%.1f", y(least_ + part * range_));
      out += "<path d=\"M" + std::to_string(kLeft) + " " + height + "H" +
             std::to_string(kWidth - kRight) + "\" stroke=\"#d8dee4\"/>\n";
      out += text(kLeft - 8, y(least_ + part * range_) + 4, "end",
                  number("%.4g", least_ + part * range_));
    }
    out += line(values_, "#86b6e8", "0.8");
    out += line(means_around(values_), "#1f4e8c", "2");
    return out;
  }

  [[nodiscard]] static std::string text(double x, double y, std::string_view anchor,
                                        std::string_view content) {
    return "<text x=\"" + number("%.1f", x) + "\" y=\"" + number("%.1f", y) +
           "\" font-size=\"12\" text-anchor=\"" + std::string(anchor) + "\">" +
           std::string(content) + "</text>\n";
  }

 private:
  [[nodiscard]] double x(std::size_t at) const {
    const auto last = static_cast<double>(std::max<std::size_t>(values_.size() - 1, 1));
    return kLeft + (kWidth - kLeft - kRight) * static_cast<double>(at) / last;
  }
  [[nodiscard]] double y(double value) const {
    return top_ + kPanelHeight * (1 - (value - least_) / range_);
  }
  [[nodiscard]] std::string line(const std::vector<double>& values, std::string_view colour,
                                 std::string_view width) const {
    std::string points;
    for (std::size_t at = 0; at < values.size(); ++at)
      points += number("%.1f", x(at)) + "," + number("%.1f ", y(values[at]));
    return "<polyline fill=\"none\" stroke=\"" + std::string(colour) + "\" stroke-width=\"" +
           std::string(width) + "\" points=\"" + points + "\"/>\n";
  }

  int top_;
  std::string_view title_;
  std::vector<double> values_;
  double least_ = 0, range_ = 1;
};

}  // namespace

std::string curve_csv(std::span<const EpisodeFigures> episodes) {
  std::string out =
      "episode,steps,reward,violation,throughput,critic_loss,temperature,entropy,target_entropy,"
      "played_reward,played_violation\n";
  for (const EpisodeFigures& episode : episodes) {
    out += std::to_string(episode.episode) + "," + std::to_string(episode.steps);
    for (const double value :
         {episode.reward, episode.violation, episode.throughput, episode.critic_loss,
          episode.temperature, episode.entropy, episode.target_entropy}) {
      out += number(",%.6g", value);
    }
    for (const double value : {episode.played_reward, episode.played_violation})
      out += episode.played > 0 ? number(",%.6g", value) : ",";
    out += '\n';
  }
  return out;
}

std::string curve_svg(std::span<const EpisodeFigures> episodes) {
  struct Shown {
    std::string_view title;
    double EpisodeFigures::*field;
    double factor;
  };
  constexpr std::array<Shown, 3> kShown{
      Shown{"Reward of a step", &EpisodeFigures::reward, 1},
      Shown{"Requests not served within their SLO, %", &EpisodeFigures::violation, 100},
      Shown{"Requests/s within their SLO", &EpisodeFigures::throughput, 1}};
  const int height = kTop + static_cast<int>(kShown.size()) * (kPanelHeight + kPanelGap) + 4;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kWidth) +
                    "\" height=\"" + std::to_string(height) +
                    "\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1f2328\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  int top = kTop;
  for (const Shown& shown : kShown) {
    if (episodes.empty()) break;
    std::vector<double> values;
    for (const EpisodeFigures& episode : episodes)
      values.push_back(episode.*shown.field * shown.factor);
    out += Panel(top, shown.title, std::move(values)).svg();
    top += kPanelHeight + kPanelGap;
  }
  out += Panel::text(kWidth - kRight, height - 14, "end",
                     std::to_string(episodes.size()) + " episodes; dark: moving mean of " +
                         std::to_string(2 * kAround + 1));
  return out + "</svg>\n";
}

}  // namespace gpulet::train
