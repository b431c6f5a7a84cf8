# cmake -D SOURCE=DIR -D OUTPUT=FILE -P GpuletCommit.cmake
# Writes the source that defines the commit of the sources, and only if that has changed: it runs in every build.
set(commit none)
find_program(git git)
if(git)
  # Not the repository that an unpacked archive happens to be in.
  execute_process(COMMAND ${git} rev-parse --show-prefix WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE prefix
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND prefix STREQUAL "")
    execute_process(COMMAND ${git} describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(commit ${described})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
#include "version/build_info.h"

namespace gpulet::version {

const char* const kCommit = "@commit@";

}  // namespace gpulet::version
]=])
