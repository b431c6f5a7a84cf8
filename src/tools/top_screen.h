// What `gpulet top` shows and understands, without the terminal: a text cut to a window, and keys.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

struct Window {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

enum class Key { quit, up, down, page_up, page_down, first, last };

// The keys in what a terminal sent: q; the arrows, k and j; the page keys, b and the space bar;
// home and end, g and G. Others are left out.
[[nodiscard]] std::vector<Key> keys_of(std::string_view typed);

// Where a text of `lines` begins on a screen that shows `shown` of them, after that key.
[[nodiscard]] std::size_t scrolled(std::size_t first, Key key, std::size_t lines,
                                   std::size_t shown);

[[nodiscard]] std::size_t count_lines(std::string_view text);

// Everything that is to be written to the terminal to show `title` and below it the lines of `body`
// from `first` on, over what is there: every line is cut to the window, colours and other escape
// sequences take no room and end with their line. Scrolls no window.
[[nodiscard]] std::string compose_screen(std::string_view title, std::string_view body,
                                         std::size_t first, const Window& window);

}  // namespace gpulet::tools
