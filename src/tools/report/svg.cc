#include "tools/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

constexpr std::array<std::string_view, 10> kColours{"#86b6e8", "#f5b56e", "#97c982", "#ea8f8f",
                                                    "#bfa3de", "#cba888", "#f1a9cc", "#d9d46c",
                                                    "#79cfc9", "#b4bac2"};

// The width of a wide letter of a sans-serif font, in font sizes.
constexpr double kLetterWidth = 0.6;

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML allows no other control characters.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

int text_width(std::string_view text, int font_px) {
  const auto letters = static_cast<double>(display_width(text));
  return static_cast<int>(std::ceil(letters * font_px * kLetterWidth));
}

std::string cut_to(std::string_view text, int width, int font_px) {
  if (text_width(text, font_px) <= width) return std::string(text);
  std::size_t letters = display_width(text);
  while (letters > 0 &&
         std::ceil(static_cast<double>(letters + 1) * font_px * kLetterWidth) > width)
    --letters;
  return std::string(first_characters(text, letters)) + "…";
}

std::string fill_colour(std::size_t index) {
  if (index < kColours.size()) return std::string(kColours[index]);
  // The golden angle keeps the hues of neighbours apart.
  const double hue = std::fmod(static_cast<double>(index) * 137.508, 360.0);
  const double lightness = index % 2 == 0 ? 0.7 : 0.8;
  std::string colour = "#";
  for (const double channel : {0.0, 8.0, 4.0}) {
    const double turn = std::fmod(channel + hue / 30, 12.0);
    const double part = 0.6 * std::min(lightness, 1 - lightness);
    const double value = lightness - part * std::max(-1.0, std::min({turn - 3, 9 - turn, 1.0}));
    colour += fmt::format("{:02x}", std::lround(value * 255));
  }
  return colour;
}

void Svg::rect(const Box& box, std::string_view style, std::string_view tooltip) {
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" {})", box.x, box.y, box.width,
                       box.height, style);
  body_ += tooltip.empty() ? "/>\n" : "><title>" + xml_escaped(tooltip) + "</title></rect>\n";
}

void Svg::text(int x, int y, int font_px, std::string_view style, std::string_view content) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" {}>{}</text>\n", x, y, font_px,
                       style, xml_escaped(content));
}

std::string Svg::document(int width, int height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1f2328\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      width, height, body_);
}

}  // namespace gpulet::tools
