// Writes an SVG document element by element. Lengths are whole pixels. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpulet::tools {

struct Box {
  int x = 0, y = 0, width = 0, height = 0;
};

// An estimate of the maximum width; the viewer chooses the font.
[[nodiscard]] int text_width(std::string_view text, int font_px);
// Truncates the text to the width, with an ellipsis.
[[nodiscard]] std::string cut_to(std::string_view text, int width, int font_px);

// A fill colour on which dark text is readable. The first ten are easy to tell apart.
[[nodiscard]] std::string fill_colour(std::size_t index);

class Svg {
 public:
  // `style`: further attributes, written verbatim. Texts are escaped.
  void rect(const Box& box, std::string_view style, std::string_view tooltip = {});
  void text(int x, int y, int font_px, std::string_view style, std::string_view content);

  // The document so far.
  [[nodiscard]] std::string document(int width, int height) const;

 private:
  std::string body_;
};

}  // namespace gpulet::tools
