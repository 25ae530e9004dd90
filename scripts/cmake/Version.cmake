# Run at every build: cmake -DSOURCE=DIR -DTEMPLATE=FILE -DOUTPUT=FILE -P Version.cmake. Commit and dirty flag of the sources; a source
# tree without git (an archive) is "unknown". The header is touched only when its text changes.
set(commit unknown)
set(dirty false)
set(ENV{GIT_OPTIONAL_LOCKS} 0)  # looking must not block somebody else's commit
execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${SOURCE}
  RESULT_VARIABLE failed OUTPUT_VARIABLE head ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed EQUAL 0 AND EXISTS ${SOURCE}/.git)
  set(commit ${head})
  execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
