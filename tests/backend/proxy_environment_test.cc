// The environment variables of a proxy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "backend/child_process.h"

namespace gpulet::backend {
namespace {

using Strings = std::vector<std::string>;

Strings sorted(Strings strings) {
  std::sort(strings.begin(), strings.end());
  return strings;
}

TEST(ProxyEnvironment, PassesOnVariablesOfLibrariesOnly) {
  const std::array own{"PATH=/bin",           "LC_ALL=C",
                       "OMP_NUM_THREADS=4",   "CUDA_VISIBLE_DEVICES=0",
                       "TORCH_HOME=/t",       "GPULET_ONNXRUNTIME=/o.so",
                       "GPULET_TOKEN=secret", "AWS_SECRET_ACCESS_KEY=x",
                       "LD_PRELOAD=/l.so",    static_cast<const char*>(nullptr)};
  EXPECT_EQ(sorted(proxy_environment(own.data(), {}, {})),
            (Strings{"CUDA_VISIBLE_DEVICES=0", "GPULET_ONNXRUNTIME=/o.so", "LC_ALL=C",
                     "OMP_NUM_THREADS=4", "PATH=/bin", "TORCH_HOME=/t"}));
}

TEST(ProxyEnvironment, PassesOnListedVariables) {
  const std::array own{"A=1", "AB=2", "C=3", "GPULET_PROXY_ENVIRONMENT=C,D",
                       static_cast<const char*>(nullptr)};
  EXPECT_EQ(sorted(proxy_environment(own.data(), {"A"}, {})), (Strings{"A=1", "C=3"}));
}

TEST(ProxyEnvironment, AppliesOverrides) {
  const std::array own{"OMP_NUM_THREADS=4", "A=1", static_cast<const char*>(nullptr)};
  EXPECT_EQ(sorted(proxy_environment(own.data(), {"A"}, {{"A", "2"}, {"OMP_NUM_THREADS", "1"}})),
            (Strings{"A=2", "OMP_NUM_THREADS=1"}));
}

TEST(ProxyEnvironment, IgnoresEntriesThatAreNotVariables) {
  const std::array own{"PATH", "", "=x", static_cast<const char*>(nullptr)};
  EXPECT_EQ(proxy_environment(own.data(), {}, {}), Strings());
}

}  // namespace
}  // namespace gpulet::backend
