#include "gpulet/serve/gpulet_phase.h"

namespace gpulet::serve {

std::string_view to_string(GpuletPhase phase) {
  switch (phase) {
    case GpuletPhase::fetching:
      return "fetching";
    case GpuletPhase::starting:
      return "starting";
    case GpuletPhase::loading:
      return "loading";
    case GpuletPhase::ready:
      return "ready";
    case GpuletPhase::restarting:
      return "restarting";
    case GpuletPhase::failed:
      return "failed";
    case GpuletPhase::retiring:
      return "retiring";
    case GpuletPhase::gone:
      return "gone";
  }
  return "unknown";
}

bool is_legal_transition(GpuletPhase from, GpuletPhase to) {
  using enum GpuletPhase;
  switch (from) {
    case fetching:
      return to == starting || to == failed || to == gone;
    case starting:
      return to == loading || to == restarting || to == failed || to == retiring;
    case loading:
      return to == ready || to == restarting || to == failed || to == retiring;
    case ready:
      return to == restarting || to == retiring;
    case restarting:
      return to == starting || to == gone;
    case failed:
    case retiring:
      return to == gone;
    case gone:
      return false;
  }
  return false;
}

bool has_process(GpuletPhase phase) {
  using enum GpuletPhase;
  return phase == starting || phase == loading || phase == ready || phase == retiring;
}

GpuletState reported_state(GpuletPhase phase) {
  switch (phase) {
    case GpuletPhase::fetching:
    case GpuletPhase::starting:
    case GpuletPhase::loading:
      return GpuletState::preparing;
    case GpuletPhase::ready:
      return GpuletState::ready;
    case GpuletPhase::restarting:
      return GpuletState::restarting;
    case GpuletPhase::failed:
      return GpuletState::failed;
    case GpuletPhase::retiring:
    case GpuletPhase::gone:
      return GpuletState::gone;
  }
  return GpuletState::gone;
}

}  // namespace gpulet::serve
