# Flags for our own code, as targets: nothing is set globally except what a sanitizer must see everywhere.

add_library(gpulet_warnings INTERFACE)
target_compile_options(gpulet_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
if(GPULET_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees writes out of bounds in its own inlined std::string. It keeps quiet about the system's headers, but a
  # precompiled header is no system header to it. Builds without precompiled headers look out for our own.
  target_compile_options(gpulet_warnings INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
                         -Wno-stringop-overread)
endif()

# gRPC brings it for what links gRPC, and a precompiled header serves only those who say the same.
add_compile_options(-pthread)
if(GPULET_SANITIZE)
  add_compile_options(-fsanitize=${GPULET_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GPULET_SANITIZE})
  add_compile_definitions(GPULET_SANITIZED)
  if(GPULET_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    add_link_options(-fno-sanitize-recover=undefined)
    # These checks cost a quarter of the compile time. AddressSanitizer finds null and wrongly typed pointers;
    # alignment matters only where bytes become values (gpulet_check_alignment).
    add_compile_options(-fno-sanitize=null,object-size,vptr,alignment)
  endif()
  if(GPULET_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio's fences, which ThreadSanitizer does not model, would drown the output; the runs are clean.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# For the tests' own sources: the code under test is in the modules, so their speed does not matter.
add_library(gpulet_test_flags INTERFACE)
if(GPULET_SANITIZE MATCHES "undefined")
  target_compile_options(gpulet_test_flags INTERFACE -fno-sanitize=undefined)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC warns of designated initializers too, which name the fields that a test is about.
  target_compile_options(gpulet_test_flags INTERFACE -Wno-missing-field-initializers)
endif()

# For modules that read bytes as values of other types.
function(gpulet_check_alignment target)
  if(GPULET_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fsanitize=alignment)
    # The precompiled headers lack the flag.
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

if(GPULET_FUZZ_COVERAGE)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Clang 14 rejects LibTorch's headers as C++20: they use std::vector of an incomplete type, and clang instantiates
# constexpr members at once. GCC compiles what includes them. The sanitizers of both have one interface.
function(gpulet_compile_with_gcc)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set_target_properties(${ARGN} PROPERTIES CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/gcc-launcher
                                             DISABLE_PRECOMPILE_HEADERS ON)
  elseif(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "clang-launcher$")
    set_target_properties(${ARGN} PROPERTIES CXX_COMPILER_LAUNCHER ccache DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# For the folder of the tests, in an optimised build: no optimisation, no debug information, and clang in place of GCC,
# because it takes half the time; GCC where clang is not installed. The modules under test keep the compiler and the flags
# of the programs.
macro(gpulet_compile_tests_quickly)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    add_compile_options(-O0 -g0)
    find_program(GPULET_CLANG clang++-14)
    if(GPULET_CLANG AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
      set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/clang-launcher)
    endif()
  endif()
endmacro()

find_program(GPULET_MOLD mold)
if(GPULET_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# For modules that plan and predict, in builds of GPULET_OPTIMIZE_PLANNING. The precompiled headers lack the flag.
function(gpulet_optimize_planning target)
  if(GPULET_OPTIMIZE_PLANNING)
    target_compile_options(${target} PRIVATE -O1)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # Clang inlines at -O1 as much as at -O2, which doubles the time to compile under sanitizers.
      target_compile_options(${target} PRIVATE "SHELL:-mllvm -inline-threshold=25")
    endif()
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# For the modules of the engine: under AddressSanitizer their tests serve millions of simulated requests.
function(gpulet_optimize_engine)
  if(GPULET_SANITIZE MATCHES "address")
    foreach(target IN LISTS ARGN)
      gpulet_optimize_planning(${target})
    endforeach()
  endif()
endfunction()
