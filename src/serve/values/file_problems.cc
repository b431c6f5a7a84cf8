#include "serve/values/file_problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpulet/base/text.h"

namespace gpulet::serve {
namespace {

// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, names.size())));
  std::string text = joined(first);
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

std::vector<std::string> names_beyond(const std::map<std::string, std::string>& some,
                                      const std::map<std::string, std::string>& others) {
  std::vector<std::string> names;
  for (const auto& [name, profiles] : some) {
    if (!others.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<FileProblems::News> FileProblems::read(Catalogue& catalogue) {
  std::vector<News> news;
  if (!rejection_.ok())
    news.push_back({false, "the files of models and profiles can be read again"});
  rejection_ = {};
  for (const std::string& fault : catalogue.faults) {
    if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end())
      news.push_back({true, escaped(fault)});
  }
  const std::vector<std::string> lost = names_beyond(catalogue.kept_profiles, kept_);
  const std::vector<std::string> back = names_beyond(kept_, catalogue.kept_profiles);
  if (!lost.empty()) {
    news.push_back(
        {true, fmt::format("the profiles have lost {}: figures that were read before stay in use "
                           "until the models are measured again or leave the models file",
                           some_of(lost))});
  }
  if (!back.empty())
    news.push_back({false, "no old figures are in use any more of " + some_of(back)});
  faults_ = std::move(catalogue.faults);
  kept_ = std::move(catalogue.kept_profiles);
  return news;
}

std::vector<FileProblems::News> FileProblems::rejected(const Status& why, bool by_hand) {
  if (!by_hand && why == rejection_) return {};
  if (!by_hand) rejection_ = why;
  return {{true, "the models stay as they are: " + why.message()}};
}

std::vector<std::string> FileProblems::all() const {
  std::vector<std::string> problems;
  if (!rejection_.ok()) problems.push_back(escaped(rejection_.message()));
  for (const std::string& fault : faults_) problems.push_back(escaped(fault));
  return problems;
}

std::string FileProblems::of_model(const std::string& name) const {
  const auto kept = kept_.find(name);
  if (kept == kept_.end()) return {};
  return fmt::format(
      "the profile {} has lost it, and figures that were read before are in use; measure it again "
      "with `{}`",
      kept->second, measure_command(name));
}

}  // namespace gpulet::serve
