#include "gpulet/base/status.h"

namespace gpulet {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid:
      return "invalid";
    case StatusCode::not_found:
      return "not_found";
    case StatusCode::unavailable:
      return "unavailable";
    case StatusCode::too_late:
      return "too_late";
    case StatusCode::overloaded:
      return "overloaded";
    case StatusCode::timeout:
      return "timeout";
    case StatusCode::cancelled:
      return "cancelled";
    case StatusCode::malformed:
      return "malformed";
    case StatusCode::internal:
      return "internal";
    case StatusCode::unauthenticated:
      return "unauthenticated";
    case StatusCode::forbidden:
      return "forbidden";
    case StatusCode::limited:
      return "limited";
  }
  return "unknown";
}

Status Status::within(std::string_view where) const {
  if (ok()) return *this;
  return {code_, std::string(where) + ": " + message_};
}

std::string Status::to_string() const {
  std::string text(gpulet::to_string(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace gpulet
