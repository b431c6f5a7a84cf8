// FileProblems: the current errors in the catalogue's files. Pure; one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::serve {

// Errors in the models file and the profiles, and profiles that no longer contain a model.
class FileProblems {
 public:
  struct News {
    bool warning = false;
    std::string text;
  };

  // The files were read. Moves their errors out of the catalogue and returns what changed.
  [[nodiscard]] std::vector<News> read(Catalogue& catalogue);
  // The files could not be read. Returns nothing if the error was reported before. `by_hand`: an
  // administrator's request was invalid, which says nothing about the files.
  [[nodiscard]] std::vector<News> rejected(const Status& why, bool by_hand);

  // All errors, each with its place, as one line of printable text.
  [[nodiscard]] std::vector<std::string> all() const;
  // The warning that a profile has lost the model. Empty: none has.
  [[nodiscard]] std::string of_model(const std::string& name) const;

 private:
  Status rejection_;                         // of the last reading; ok: it was accepted
  std::vector<std::string> faults_;          // as Catalogue::faults
  std::map<std::string, std::string> kept_;  // as Catalogue::kept_profiles
};

}  // namespace gpulet::serve
