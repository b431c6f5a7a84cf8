// A table in columns for the terminal: titles, a line, the rows. Text is UTF-8; a character counts
// as one column. Pure; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit Table(std::vector<Column> columns);

  // REQUIRES: one cell per column; throws std::invalid_argument otherwise (a bug of the caller).
  void add_row(std::vector<std::string> cells);

  // Every line ends with a newline and has no spaces at its end.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters of UTF-8 text, not bytes.
[[nodiscard]] std::size_t display_width(std::string_view text);

// The text in lines of at most so many characters, broken between words; those after the first
// begin with `indent` spaces. 0 columns: one line. Every line ends with a newline.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

// "12.34"; "-" where there is no number (not finite).
[[nodiscard]] std::string fixed(double value, int decimals);

// The same without zeros at the end of its fraction: 40.0 is "40", 12.50 is "12.5".
[[nodiscard]] std::string shortest(double value, int decimals);

}  // namespace gpulet::tools
