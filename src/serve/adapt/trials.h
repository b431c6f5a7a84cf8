// Trials: what plans do with versions that no process has loaded and run yet. Such a version may
// never end its first run, so it gets gpulets of its own, and nothing that serves waits for it or
// makes room for it. Where no device has room for such a gpulet, it may share one once: if that
// gpulet is late, the version waits until there is room. Only some versions are tried at a time.
//
// Versions that are planned while nothing has ever served are planned like any other: nothing would
// be gained by trying them one by one. If their gpulet is late, each is tried alone. Pure; one
// thread at a time.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "gpulet/base/time.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

inline constexpr std::size_t kTrialsAtOnce = 4;

// Fills MakePlan::trials, and takes out the demands of versions that must wait.
void choose_trials(ModelTable& models, const BackendRegistry& backends, Time now, MakePlan& effect);
// No device has room for these models. No plan tries them before `until`.
void put_off_trials(ModelTable& models, const std::set<std::string>& names, Time until);
// Some model waits and may be tried now.
[[nodiscard]] bool trials_wait(const ModelTable& models, Time now);

}  // namespace gpulet::serve
