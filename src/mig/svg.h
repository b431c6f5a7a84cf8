// A document of SVG, written element by element. Lengths are whole pixels. Pure.
#pragma once

#include <string>
#include <string_view>

namespace gpulet::mig {

struct Box {
  int x = 0, y = 0, width = 0, height = 0;
};

// How wide a text is at most, about: the viewer chooses the font.
[[nodiscard]] int text_width(std::string_view text, int font_px);
// Cut to the width, with an ellipsis where something is lost.
[[nodiscard]] std::string cut_to(std::string_view text, int width, int font_px);

// Fill colours on which dark text can be read; the first ten are told apart at a glance.
[[nodiscard]] std::string fill_colour(std::size_t index);

class Svg {
 public:
  // `style` are further attributes, as they are written. Every text is escaped here.
  void rect(const Box& box, std::string_view style, std::string_view tooltip = {});
  void text(int x, int y, int font_px, std::string_view style, std::string_view content);

  // The document so far.
  [[nodiscard]] std::string document(int width, int height) const;

 private:
  std::string body_;
};

}  // namespace gpulet::mig
