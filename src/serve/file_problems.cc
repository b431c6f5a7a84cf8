#include "gpulet/serve/file_problems.h"

#include <algorithm>
#include <utility>

#include "gpulet/core/escape.h"
#include "serve/wording.h"

namespace gpulet::serve {
namespace {

// "a, b, c and 12 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, names.size())));
  std::string text = joined(first, ", ");
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
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
  if (!refused_.ok()) news.push_back({false, "the files of models and profiles can be read again"});
  refused_ = {};
  for (const std::string& fault : catalogue.faults) {
    if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end())
      news.push_back({true, escaped(fault)});
  }
  const std::vector<std::string> lost = names_beyond(catalogue.kept_profiles, kept_);
  const std::vector<std::string> back = names_beyond(kept_, catalogue.kept_profiles);
  if (!lost.empty()) {
    news.push_back(
        {true, "the profiles have lost " + some_of(lost) +
                   ": figures that were read before stay in use until the models are measured "
                   "again or leave the models file"});
  }
  if (!back.empty())
    news.push_back({false, "no old figures are in use any more of " + some_of(back)});
  faults_ = std::move(catalogue.faults);
  kept_ = std::move(catalogue.kept_profiles);
  return news;
}

std::vector<FileProblems::News> FileProblems::refused(const Status& why, bool by_hand) {
  if (!by_hand && why == refused_) return {};
  if (!by_hand) refused_ = why;
  return {{true, "the models stay as they are: " + why.message()}};
}

std::vector<std::string> FileProblems::all() const {
  std::vector<std::string> problems;
  if (!refused_.ok()) problems.push_back(escaped(refused_.message()));
  for (const std::string& fault : faults_) problems.push_back(escaped(fault));
  return problems;
}

std::string FileProblems::of_model(const std::string& name) const {
  const auto kept = kept_.find(name);
  if (kept == kept_.end()) return {};
  return "the profile " + kept->second +
         " has lost it, and figures that were read before are in use; measure it again with "
         "`gpulet profile run --only " +
         name + "`";
}

}  // namespace gpulet::serve
