#include "proxy/share_check.h"

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "gpulet/partition/driver.h"

namespace gpulet::proxy {
namespace {

// Of SMs, between two sizes that a GPU can give (Hopper).
constexpr std::uint32_t kCoarsestStep = 8;

Result<std::uint32_t> parse(const char* name, const char* text, std::uint32_t least,
                            std::uint32_t most) {
  const std::string_view all(text);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc() || end != all.data() + all.size() || number < least || number > most) {
    return Status(StatusCode::invalid, std::string(name) + " must be " + std::to_string(least) +
                                           ".." + std::to_string(most) + "; was '" +
                                           std::string(all) + "'");
  }
  return number;
}

}  // namespace

Result<ExpectedShare> parse_expected_share(const char* share, const char* device_sms) {
  constexpr std::uint32_t kMostSms = 100'000;
  ExpectedShare expected;
  if (share != nullptr) {
    const auto percent = parse(partition::kExpectedShareVariable, share, 1, 100);
    if (!percent.ok()) return percent.status();
    expected.share = Share{static_cast<int>(percent.value())};
  }
  if (device_sms != nullptr) {
    const auto sms = parse(partition::kDeviceSmsVariable, device_sms, 1, kMostSms);
    if (!sms.ok()) return sms.status();
    expected.device_sms = sms.value();
  }
  return expected;
}

Result<partition::FoundShare> check_share(const ExpectedShare& expected,
                                          partition::FoundShare found) {
  if (found.device_sms == 0) found.device_sms = expected.device_sms;
  if (!expected.share) return found;
  const auto wanted = std::to_string(expected.share->percent) + " %";
  if (!found.held) {
    return Status(StatusCode::unavailable,
                  "this process is to have " + wanted +
                      " of its device, and nothing holds it to that: it is no client of the "
                      "device's daemon, or this program cannot tell; it does not serve");
  }
  const double most = expected.share->fraction() * found.device_sms + kCoarsestStep;
  if (found.device_sms > 0 && found.sms > most) {
    return Status(StatusCode::unavailable,
                  "this process is to have " + wanted + " of its device, and was given " +
                      std::to_string(found.sms) + " of its " + std::to_string(found.device_sms) +
                      " SMs; it does not serve");
  }
  return found;
}

}  // namespace gpulet::proxy
