// Text for the terminal: tables, wrapped lines, numbers and times. Text is UTF-8, and a character
// counts as one column. Pure, except for the functions that use the local time zone or the clock.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

// Columns with a title each, a rule below the titles, then the rows.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit Table(std::vector<Column> columns);
  // Left-aligned columns, then right-aligned ones.
  [[nodiscard]] static Table of(const std::vector<std::string>& left,
                                const std::vector<std::string>& right);

  // REQUIRES: one cell per column; throws std::invalid_argument otherwise (a bug of the caller).
  void add_row(std::vector<std::string> cells);

  // Every line ends with a newline and has no trailing spaces.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The number of characters, not bytes.
[[nodiscard]] std::size_t display_width(std::string_view text);

// The longest beginning of the text with at most this many characters.
[[nodiscard]] std::string_view first_characters(std::string_view text, std::size_t characters);

// Removes the first line from the text and returns it without its newline. REQUIRES: not empty.
std::string_view take_line(std::string_view& text);

// Breaks the text between words into lines of at most `columns` characters; 0: one line. Lines
// after the first begin with `indent` spaces. Every line ends with a newline.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

// "12.34"; "-" for a value that is not finite.
[[nodiscard]] std::string fixed(double value, int decimals);

// The same without trailing zeros in the fraction: 40.0 is "40", 12.50 is "12.5".
[[nodiscard]] std::string shortest(double value, int decimals);

// "0, 2, 5"
[[nodiscard]] std::string number_list(const std::vector<std::uint32_t>& numbers,
                                      std::string_view separator = ", ");

// "11:45:02" in the local time zone, or "2026-11-23 11:45:02" if the time is more than twelve hours
// from `now`. Both are in seconds since 1970.
[[nodiscard]] std::string clock_text(double unix_seconds, double now);
// "2026-11-23 11:45:02" in the local time zone.
[[nodiscard]] std::string date_and_clock_text(double unix_seconds);
// The current time in UTC: "2026-11-22T03:10:00Z".
[[nodiscard]] std::string utc_date_now();

}  // namespace gpulet::tools
