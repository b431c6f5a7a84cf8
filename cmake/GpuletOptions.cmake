# Flags for our own code, as targets: nothing is set globally except what a sanitizer must see everywhere.

add_library(gpulet_warnings INTERFACE)
target_compile_options(gpulet_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

if(GPULET_SANITIZE)
  add_compile_options(-fsanitize=${GPULET_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GPULET_SANITIZE})
  if(GPULET_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    add_link_options(-fno-sanitize-recover=undefined)
  endif()
  if(GPULET_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio's fences, which ThreadSanitizer does not model, would drown the output; the runs are clean.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(GPULET_WITH_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link,address)
  add_link_options(-fsanitize=address)
endif()

find_program(GPULET_MOLD mold)
if(GPULET_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
