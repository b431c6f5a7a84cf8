// What a frontend is to serve: models, the profiles that say how they run, and applications of
// them. A value that is replaced as a whole when the files behind it change. Plain value; any
// thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/application.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

struct Catalogue {
  std::vector<ServedModel> models;                      // names are unique
  std::shared_ptr<const profile::ProfileSet> profiles;  // null: none
  // What plans believe of neighbours; refers to the profiles. Null: every slowdown is 1.
  std::shared_ptr<const profile::InterferenceSet> interference{};
  ApplicationList applications{};  // of these models; names are unique among both
  // Names of further models that could be loaded: somebody unloaded them. By name; null: none.
  std::shared_ptr<const std::vector<std::string>> unloaded{};
  // Models that a profile has lost since it was read before, with the profiles' names: what was
  // read then is still among `profiles`.
  std::map<std::string, std::string> kept_profiles{};
  // Files that could not be read and in whose place what was read before counts: what is wrong
  // with each, and where.
  std::vector<std::string> faults{};
};

}  // namespace gpulet::serve
