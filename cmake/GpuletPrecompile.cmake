# Headers that many sources begin with, parsed once for all of them: GPULET_PRECOMPILE, on in the presets that build
# everything from cold. A source still includes whatever it uses, and builds without this show that it does.

# ccache takes a precompiled header by its content if it is told to.
if(GPULET_PRECOMPILE AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

set(GPULET_COMMON_HEADERS <algorithm> <chrono> <cmath> <cstdint> <functional> <map> <memory> <optional> <set> <string>
                          <string_view> <utility> <variant> <vector>)

# gpulet_precompiled(<name> HEADERS ... [LIBS ...]): library <name>, which holds nothing but the headers in parsed form.
function(gpulet_precompiled name)
  if(NOT GPULET_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PRECOMPILED "" "" "HEADERS;LIBS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE ${PRECOMPILED_LIBS} gpulet_warnings)
  target_precompile_headers(${name} PRIVATE ${GPULET_COMMON_HEADERS} ${PRECOMPILED_HEADERS})
endfunction()

# Lets the target use them. It needs the same code generation flags and the same definitions that the headers look at:
# LibTorch's change the standard headers.
function(gpulet_use_precompiled target name)
  get_target_property(links ${target} LINK_LIBRARIES)
  if(GPULET_PRECOMPILE AND NOT links MATCHES "torch_library")
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
