#include "gpulet/cluster/membership.h"

namespace gpulet::cluster {

std::string_view to_string(StoreState state) {
  switch (state) {
    case StoreState::connecting:
      return "connecting";
    case StoreState::here:
      return "here";
    case StoreState::away:
      return "away";
    case StoreState::refused:
      return "refused";
    case StoreState::conflict:
      return "conflict";
  }
  return "unknown";
}

}  // namespace gpulet::cluster
