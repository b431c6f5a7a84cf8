// Any bytes in the place of one file of a sound profile: a profile or a Status with a message, and
// what was read predicts finite slowdowns.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace gpulet;           // NOLINT(google-build-using-namespace)
using namespace gpulet::profile;  // NOLINT(google-build-using-namespace)

constexpr std::array kFiles{"profile.json", "latency.csv", "utilization.csv", "interference.csv",
                            "interference.json"};

Profile sound_profile() {
  Profile profile;
  profile.name = "gpu";
  for (const std::string model : {"a", "b"}) {
    std::vector<LatencySample> samples;
    ModelProfile measured{LatencyTable::create({{1, kWholeDevice, 1, {}}}).value(), {}, {}};
    for (const int percent : {20, 80, 100}) {
      for (const std::uint32_t batch : {1U, 4U}) {
        samples.push_back({batch, Share{percent}, 2.0 + batch * 30.0 / percent, {}});
        measured.utilization.push_back({batch, Share{percent}, 0.2 * batch, 0.1 * batch});
      }
    }
    measured.latency = LatencyTable::create(samples).value();
    profile.models.emplace(model, std::move(measured));
  }
  for (const std::string model : {"a", "b"}) {
    for (const std::string other : {"a", "b"}) {
      for (const std::uint32_t batch : {1U, 4U}) {
        for (const std::uint32_t beside : {1U, 4U}) {
          for (const int percent : {20, 80}) {
            profile.pairs.push_back(
                {model, batch, Share{percent}, other, beside, Share{100 - percent}, 6.0 + batch});
          }
        }
      }
    }
  }
  profile.interference = fit_interference(profile, {}).value();
  return profile;
}

void use(const Profile& profile) {
  for (const InterferenceKind kind : {InterferenceKind::linear, InterferenceKind::learned}) {
    const auto model = InterferenceModel::create(profile, kind);
    if (!model.ok()) continue;
    for (const auto& [name, measured] : profile.models) {
      const LatencySample& cell = measured.latency.samples().front();
      const BatchTraits traits = model.value().traits(name, cell.batch, cell.share);
      const double slowdown = model.value().slowdown(traits, traits);
      if (!(slowdown >= 1) || !std::isfinite(slowdown)) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  static const bool written = write_profile(sound_profile(), folder).ok();
  if (!written) std::abort();
  if (size == 0) return 0;
  const std::filesystem::path place = folder / "gpu";
  const std::filesystem::path file = place / kFiles[data[0] % kFiles.size()];
  const std::filesystem::path kept = folder / "kept";
  std::filesystem::rename(file, kept);
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  const auto read = read_profile(place);
  if (!read.ok() && read.status().message().find("gpu/") == std::string::npos) std::abort();
  if (read.ok()) use(read.value());
  std::filesystem::rename(kept, file);
  return 0;
}
