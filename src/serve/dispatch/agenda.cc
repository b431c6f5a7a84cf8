#include "serve/dispatch/agenda.h"

#include <algorithm>

namespace gpulet::serve {

void Agenda::add(ModelIndex model) {
  if (model >= models_.size()) models_.resize(model + 1);
}

void Agenda::forget(ModelIndex model) {
  if (models_[model].touched) std::erase(touched_, model);
  models_[model] = {};
}

void Agenda::touch(ModelIndex model) {
  instances_due_ = true;
  if (std::exchange(models_[model].touched, true)) return;
  touched_.push_back(model);
}

void Agenda::list_due(GpuletId id, GpuletMark& mark) {
  if (std::exchange(mark.due, true)) return;
  due_.push_back(id);
}

void Agenda::wake(ModelIndex model, Time at) {
  if (at >= models_[model].wake) return;
  models_[model].wake = at;
  wakes_.emplace(at, model);
}

void Agenda::wake(GpuletId id, GpuletMark& mark, Time at) {
  if (at >= mark.wake) return;
  mark.wake = at;
  gpulet_wakes_.emplace(at, id);
}

void Agenda::wake_models(Time now) {
  while (!wakes_.empty() && wakes_.top().first <= now) {
    const auto [time, model] = wakes_.top();
    wakes_.pop();
    if (models_[model].wake != time) continue;  // an earlier entry replaced it
    models_[model].wake = kNever;
    touch(model);
  }
}

std::optional<ModelIndex> Agenda::take_model() {
  if (touched_.empty()) return std::nullopt;
  const ModelIndex model = touched_.back();
  touched_.pop_back();
  models_[model].touched = false;
  return model;
}

std::optional<GpuletId> Agenda::take_gpulet() {
  if (due_.empty()) return std::nullopt;
  const GpuletId id = due_.back();
  due_.pop_back();
  return id;
}

Time Agenda::next_wake() const {
  return std::min(wakes_.empty() ? kNever : wakes_.top().first,
                  gpulet_wakes_.empty() ? kNever : gpulet_wakes_.top().first);
}

}  // namespace gpulet::serve
