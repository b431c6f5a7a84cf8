#include "tools/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

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

std::string attribute(std::string_view name, int value) {
  return " " + std::string(name) + "=\"" + std::to_string(value) + "\"";
}

// Whether the byte begins a UTF-8 character.
bool begins_letter(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

int text_width(std::string_view text, int font_px) {
  const auto letters = std::count_if(text.begin(), text.end(), begins_letter);
  return static_cast<int>(std::ceil(static_cast<double>(letters) * font_px * kLetterWidth));
}

std::string cut_to(std::string_view text, int width, int font_px) {
  if (text_width(text, font_px) <= width) return std::string(text);
  std::string cut(text);
  while (!cut.empty() && text_width(cut + "…", font_px) > width) {
    while (!begins_letter(cut.back())) cut.pop_back();
    cut.pop_back();
  }
  return cut + "…";
}

std::string fill_colour(std::size_t index) {
  if (index < kColours.size()) return std::string(kColours[index]);
  // The golden angle keeps the hues of neighbours apart.
  const double hue = std::fmod(static_cast<double>(index) * 137.508, 360.0);
  const double lightness = index % 2 == 0 ? 0.7 : 0.8;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string colour = "#";
  for (const double channel : {0.0, 8.0, 4.0}) {
    const double turn = std::fmod(channel + hue / 30, 12.0);
    const double part = 0.6 * std::min(lightness, 1 - lightness);
    const double value = lightness - part * std::max(-1.0, std::min({turn - 3, 9 - turn, 1.0}));
    const auto byte = static_cast<std::size_t>(std::lround(value * 255));
    colour += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return colour;
}

void Svg::rect(const Box& box, std::string_view style, std::string_view tooltip) {
  body_ += "<rect" + attribute("x", box.x) + attribute("y", box.y) + attribute("width", box.width) +
           attribute("height", box.height) + " " + std::string(style);
  body_ += tooltip.empty() ? "/>\n" : "><title>" + xml_escaped(tooltip) + "</title></rect>\n";
}

void Svg::text(int x, int y, int font_px, std::string_view style, std::string_view content) {
  body_ += "<text" + attribute("x", x) + attribute("y", y) + attribute("font-size", font_px) + " " +
           std::string(style) + ">" + xml_escaped(content) + "</text>\n";
}

std::string Svg::document(int width, int height) const {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
         attribute("height", height) + " viewBox=\"0 0 " + std::to_string(width) + " " +
         std::to_string(height) +
         "\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1f2328\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
         body_ + "</svg>\n";
}

}  // namespace gpulet::tools
