# Several sources of a target compiled as one, so that headers are read once for all of them: GPULET_UNITY, on in the
# presets that build everything from cold. That each source includes what it uses and stands by itself shows in the
# builds without: dev and notorch, and scripts/lint.
set(CMAKE_UNITY_BUILD ${GPULET_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
# GCC looks for garbage once it holds 128 MB or so, which so much at once always does: a tenth of the build for little.
if(GPULET_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=2000000")
endif()

# Sources that cannot be one with their neighbours: both have a thing of the same name to themselves.
function(gpulet_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
