// What a frontend is to serve: models, the profiles that say how they run, and applications of
// them. A value that is replaced as a whole when the files behind it change. Plain value; any
// thread.
#pragma once

#include <memory>
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
};

}  // namespace gpulet::serve
