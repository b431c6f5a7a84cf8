// FileProblems: what is wrong with the files that say what to serve, for as long as it is: the
// models file, profiles that cannot be read, profiles that have lost a model. Plain bookkeeping;
// one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/serve/catalogue.h"

namespace gpulet::serve {

class FileProblems {
 public:
  // Something to be noted.
  struct News {
    bool warning = false;
    std::string text;
  };

  // The files were read; moves from the catalogue what it tells of them.
  [[nodiscard]] std::vector<News> read(Catalogue& catalogue);
  // They could not be read, and what was read before counts. Tells the same only once. `by_hand`:
  // what somebody asked for is wrong, and nothing is known of the files.
  [[nodiscard]] std::vector<News> refused(const Status& why, bool by_hand);

  // Each with its place, as one line of printable text.
  [[nodiscard]] std::vector<std::string> all() const;
  // That a profile has lost the model; empty: none has.
  [[nodiscard]] std::string of_model(const std::string& name) const;

 private:
  Status refused_;                           // the last reading; ok: it was taken in
  std::vector<std::string> faults_;          // as Catalogue::faults
  std::map<std::string, std::string> kept_;  // as Catalogue::kept_profiles
};

}  // namespace gpulet::serve
