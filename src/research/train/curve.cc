#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "research/train/training.h"

namespace gpulet::train {
namespace {

constexpr int kWidth = 760, kPanelHeight = 150, kPanelGap = 46;
constexpr int kLeft = 78, kRight = 16, kTop = 34;
// Episodes on each side in a moving mean.
constexpr std::size_t kAround = 12;

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
      const double value = least_ + part * range_;
      out += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"#d8dee4\"/>\n", kLeft, y(value),
                         kWidth - kRight);
      out += text(kLeft - 8, y(value) + 4, "end", fmt::format("{:.4g}", value));
    }
    out += line(values_, "#86b6e8", "0.8");
    out += line(means_around(values_), "#1f4e8c", "2");
    return out;
  }

  [[nodiscard]] static std::string text(double x, double y, std::string_view anchor,
                                        std::string_view content) {
    return fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"{}\">{}</text>\n", x, y,
        anchor, content);
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
      points += fmt::format("{:.1f},{:.1f} ", x(at), y(values[at]));
    return fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>\n", colour,
        width, points);
  }

  int top_;
  std::string_view title_;
  std::vector<double> values_;
  double least_ = 0, range_ = 1;
};

}  // namespace

std::string curve_csv(std::span<const EpisodeFigures> episodes) {
  std::string out =
      "episode,steps,reward,violation,throughput,batch_throughput,critic_loss,temperature,entropy,"
      "target_entropy,played_reward,played_violation\n";
  for (const EpisodeFigures& episode : episodes) {
    out += fmt::format("{},{}", episode.episode, episode.steps);
    for (const double value :
         {episode.reward, episode.violation, episode.throughput, episode.batch_throughput,
          episode.critic_loss, episode.temperature, episode.entropy, episode.target_entropy}) {
      out += fmt::format(",{:.6g}", value);
    }
    for (const double value : {episode.played_reward, episode.played_violation})
      out += episode.played > 0 ? fmt::format(",{:.6g}", value) : ",";
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
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1f2328\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  int top = kTop;
  for (const Shown& shown : kShown) {
    if (episodes.empty()) break;
    std::vector<double> values;
    for (const EpisodeFigures& episode : episodes)
      values.push_back(episode.*shown.field * shown.factor);
    out += Panel(top, shown.title, std::move(values)).svg();
    top += kPanelHeight + kPanelGap;
  }
  out += Panel::text(
      kWidth - kRight, height - 14, "end",
      fmt::format("{} episodes; dark: moving mean of {}", episodes.size(), 2 * kAround + 1));
  return out + "</svg>\n";
}

}  // namespace gpulet::train
