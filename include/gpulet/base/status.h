// Status and Result: errors across module boundaries.
//
// A function that can fail for a reason its caller must handle returns Status or Result<T>.
// Exceptions report bugs and failed construction, and never leave their module. A message states
// what failed, where, the offending value, and how to fix it. Values; any thread.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gpulet {

enum class StatusCode : std::uint8_t {
  ok = 0,
  invalid = 1,           // the caller's input is wrong; a retry will not help
  not_found = 2,         // no such model, gpulet, file
  unavailable = 3,       // nothing can serve it now; a later retry may help
  too_late = 4,          // the deadline cannot be met
  overloaded = 5,        // a bounded queue is full
  timeout = 6,           // a peer did not answer in time
  cancelled = 7,         // the caller disconnected or cancelled
  malformed = 8,         // bytes violate the protocol
  internal = 9,          // a bug, or a failure without a better code
  unauthenticated = 10,  // the caller showed no valid credentials
  forbidden = 11,        // the caller is known and lacks the right
  limited = 12,          // the caller's own limit is reached; a later retry will help
};
inline constexpr StatusCode kLastStatusCode = StatusCode::limited;

// The enumerator's name: "invalid", "too_late", ...
[[nodiscard]] std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::ok; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  // The same failure with context in front of its message: "<where>: <message>".
  [[nodiscard]] Status within(std::string_view where) const;

  // "invalid: rate must not be negative; was -3"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

// A value, or the Status that says why there is none. value() of a failed Result is a bug and
// throws.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status failure) : state_(std::move(failure)) {  // NOLINT(google-explicit-constructor)
    if (std::get<Status>(state_).ok()) {
      throw std::logic_error("a Result without a value needs a Status that failed");
    }
  }

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  [[nodiscard]] T& value() & {
    require_value();
    return std::get<T>(state_);
  }
  [[nodiscard]] const T& value() const& {
    require_value();
    return std::get<T>(state_);
  }
  // By value: a loop over f().value() must not dangle.
  [[nodiscard]] T value() && {
    require_value();
    return std::get<T>(std::move(state_));
  }

 private:
  void require_value() const {
    if (!ok())
      throw std::logic_error("value() of a failed Result: " + std::get<Status>(state_).to_string());
  }

  std::variant<T, Status> state_;
};

}  // namespace gpulet

// Declares a variable with the value of a Result, or returns the Status of one that failed:
//   GPULET_TRY(const Plan plan, make_plan(input));
// In a block of a function that returns a Status or a Result; no comma in the declaration.
#define GPULET_TRY(declaration, ...) \
  GPULET_TRY_IN(GPULET_TRY_NAME(__LINE__), declaration, __VA_ARGS__)
#define GPULET_TRY_IN(result, declaration, ...) \
  auto result = __VA_ARGS__;                    \
  if (!result.ok()) return result.status();     \
  declaration = std::move(result).value()
#define GPULET_TRY_NAME(line) GPULET_TRY_JOIN(line)
#define GPULET_TRY_JOIN(line) result_of_line_##line
