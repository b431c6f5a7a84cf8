# One folder is one module is one target. docs/architecture.md lists the modules and their layers.

# gpulet_module(<name> [SOURCES ...] [PUBLIC targets...] [PRIVATE targets...])
# Library gpulet_<name> with the sources in this folder; header-only without sources.
function(gpulet_module name)
  cmake_parse_arguments(MODULE "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(MODULE_SOURCES)
    add_library(gpulet_${name} STATIC ${MODULE_SOURCES})
    target_include_directories(gpulet_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(gpulet_${name} PUBLIC ${MODULE_PUBLIC} PRIVATE ${MODULE_PRIVATE} gpulet_warnings)
    gpulet_precompiled_of_module(gpulet_${name})
  else()
    add_library(gpulet_${name} INTERFACE)
    target_include_directories(gpulet_${name} INTERFACE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(gpulet_${name} INTERFACE ${MODULE_PUBLIC})
  endif()
endfunction()

# The libraries that a module or a program links decide which precompiled headers it uses, unless its folder has its own
# (GPULET_PRECOMPILED_OF_FOLDER; "none": they use none).
function(gpulet_precompiled_of_module target)
  get_target_property(links ${target} LINK_LIBRARIES)
  if(GPULET_PRECOMPILED_OF_FOLDER STREQUAL "none")
    return()
  elseif(GPULET_PRECOMPILED_OF_FOLDER)
    gpulet_use_precompiled(${target} ${GPULET_PRECOMPILED_OF_FOLDER})
  elseif(target STREQUAL "gpulet_net" OR "gpulet_net" IN_LIST links)
    gpulet_use_precompiled(${target} gpulet_precompiled_asio)
  elseif("nlohmann_json::nlohmann_json" IN_LIST links)
    gpulet_use_precompiled(${target} gpulet_precompiled_json)
  else()
    gpulet_use_precompiled(${target} gpulet_precompiled_common)
  endif()
endfunction()

# gpulet_inside_library(<target>...): parts of a shared library that keeps to itself what it is made of.
function(gpulet_inside_library)
  set_target_properties(${ARGN} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
endfunction()

# gpulet_library_shows(<shared library> <function>...): those and nothing else. To hide our own names is not enough: a
# standard algorithm over a type of ours has a name that is shown, the program has one of the same name for a type that
# is laid out otherwise, and the loader would take one for both.
function(gpulet_library_shows target)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  list(JOIN ARGN "; " shown)
  file(CONFIGURE OUTPUT ${script} CONTENT "{ global: ${shown}; local: *; };\n")
  target_link_options(${target} PRIVATE -Wl,--version-script=${script})
  gpulet_inside_library(${target})
endfunction()

# gpulet_modules_again(<name> MODULES modules... [OPTIONS compiler options...])
# Library <name> with the sources of those modules, compiled again with these options for use inside a shared library.
function(gpulet_modules_again name)
  cmake_parse_arguments(AGAIN "" "" "MODULES;OPTIONS" ${ARGN})
  add_library(${name} STATIC)
  foreach(module IN LISTS AGAIN_MODULES)
    get_target_property(sources gpulet_${module} SOURCES)
    get_target_property(folder gpulet_${module} SOURCE_DIR)
    list(TRANSFORM sources PREPEND ${folder}/)
    target_sources(${name} PRIVATE ${sources})
    get_target_property(definitions gpulet_${module} COMPILE_DEFINITIONS)
    if(definitions)
      target_compile_definitions(${name} PRIVATE ${definitions})
    endif()
  endforeach()
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${name} PUBLIC ${AGAIN_OPTIONS})
  target_link_libraries(${name} PRIVATE gpulet_warnings)
  gpulet_inside_library(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()

# gpulet_program(<program> SOURCES ... LIBS ...)
function(gpulet_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE ${PROGRAM_LIBS} gpulet_warnings)
  gpulet_precompiled_of_module(${name})
endfunction()

add_custom_target(all_tests)

# gpulet_test(<name> SOURCES ... LIBS ... [LABELS unit|session|net|torch|gpu|slow ...])
# SERIAL: what it measures or loads wants the machine for itself. TIMEOUT: seconds for one case (60).
# COST: seconds that a long one takes. Those begin first, so that none is left alone at the end.
# THREADS: more than one thread runs in what it tests. ThreadSanitizer builds only those: it finds nothing in the others.
# THREADS_IN: the same, and only in these sources.
# SUITES: those whose cases share what is expensive: SetUpTestSuite, or loading LibTorch. Each is one ctest entry.
# GPULET_TESTS_ELSEWHERE names modules and tests that are no part of "all", of "all_tests" and of ctest.
# Target all_tests builds all others, the fuzzers, and the programs that they run.
# Program test_<name> with GoogleTest's main. One ctest entry per other test case, named <name>.<Suite>.<Case>.
function(gpulet_test name)
  cmake_parse_arguments(TEST "SERIAL;THREADS" "TIMEOUT;COST" "SOURCES;LIBS;LABELS;SUITES;THREADS_IN" ${ARGN})
  if(GPULET_SANITIZE STREQUAL "thread")
    if(TEST_THREADS_IN)
      set(TEST_SOURCES ${TEST_THREADS_IN})
    elseif(NOT TEST_THREADS)
      return()
    endif()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 60)
  endif()
  if(NOT TEST_COST)
    set(TEST_COST 0)
  endif()
  file(RELATIVE_PATH module ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" module "${module}")
  add_executable(test_${name} ${TEST_SOURCES})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBS} GTest::gtest_main GTest::gmock gpulet_warnings
                                             gpulet_test_flags)
  gpulet_use_precompiled(test_${name} gpulet_precompiled_tests)
  gpulet_prefer_modules(test_${name} ${TEST_LIBS})
  target_compile_definitions(test_${name} PRIVATE GPULET_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                                  GPULET_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(module IN_LIST GPULET_TESTS_ELSEWHERE OR name IN_LIST GPULET_TESTS_ELSEWHERE)
    set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_dependencies(all_tests test_${name})
  set(filter)
  foreach(suite IN LISTS TEST_SUITES)
    add_test(NAME ${name}.${suite} COMMAND test_${name} --gtest_filter=${suite}.*)
    set_tests_properties(${name}.${suite} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT} COST ${TEST_COST}
                                                     RUN_SERIAL ${TEST_SERIAL})
    string(APPEND filter ":${suite}.*")
  endforeach()
  if(filter)
    string(REGEX REPLACE "^:" "-" filter "${filter}")
    set(filter TEST_FILTER "${filter}")
  endif()
  include(GoogleTest)
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." ${filter} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT} COST ${TEST_COST}
                                  RUN_SERIAL ${TEST_SERIAL})
endfunction()

# Of an inline function, such as a member of std::vector, the linker keeps the first copy for the whole program. A test's
# own copy is not optimised and would slow down the modules (seven times in one case), so theirs come first.
function(gpulet_prefer_modules target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    return()
  endif()
  set(archives)
  foreach(library IN LISTS ARGN)
    if(library MATCHES "^gpulet_" AND NOT library MATCHES "^gpulet_test_" AND TARGET ${library})
      get_target_property(type ${library} TYPE)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND archives $<TARGET_FILE:${library}>)
      endif()
    endif()
  endforeach()
  if(archives)
    target_link_options(${target} PRIVATE LINKER:--whole-archive ${archives} LINKER:--no-whole-archive)
  endif()
endfunction()

# gpulet_fuzzer(<name> SOURCES ... LIBS ...): program fuzz_<name>, only in the fuzz presets. Seeds in tests/<module>/corpus.
# Target "fuzzers" builds all of them, and the test fuzz.<name> runs each on its seeds for a few seconds.
function(gpulet_fuzzer name)
  if(NOT GPULET_WITH_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(FUZZ "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(fuzz_${name} ${FUZZ_SOURCES})
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fuzz_${name} PRIVATE ${FUZZ_LIBS} gpulet_warnings)
  target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
    add_dependencies(all_tests fuzzers)
  endif()
  add_dependencies(fuzzers fuzz_${name})
  add_test(NAME fuzz.${name} COMMAND scripts/fuzz --no-build --folder ${PROJECT_BINARY_DIR} --seconds 2 --seed 1 ${name}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120)
endfunction()

# gpulet_benchmark(<name> SOURCES ... LIBS ...): program bench_<name> with Google Benchmark.
function(gpulet_benchmark name)
  cmake_parse_arguments(BENCH "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(bench_${name} ${BENCH_SOURCES})
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(bench_${name} PRIVATE ${BENCH_LIBS} benchmark::benchmark gpulet_warnings)
  gpulet_precompiled_of_module(bench_${name})
endfunction()
