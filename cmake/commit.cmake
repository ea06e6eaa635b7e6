# Run at each build (cmake -P): writes OUTPUT, a header that defines RILL_COMMIT, when it changed.
# "unknown" outside of a git checkout; a + follows the commit when files differ from it.
set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE text RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  if(status EQUAL 0)
    set(commit ${text})
    execute_process(COMMAND ${GIT} --no-optional-locks status --porcelain --untracked-files=no
                    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE text ERROR_QUIET)
    if(text)
      string(APPEND commit "+")
    endif()
  endif()
endif()

set(header "#define RILL_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT header STREQUAL old)
  file(WRITE ${OUTPUT} "${header}")
endif()
